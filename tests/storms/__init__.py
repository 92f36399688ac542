"""Storms: a program that asks for anything, a journal where everything happens, and the laws that hold all the same."""
