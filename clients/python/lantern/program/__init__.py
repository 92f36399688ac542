"""Workflow code as a program: what users write against, and the host in which an executor runs it.

The package is not called `workflow` because `lantern.workflow` is the decorator.
"""
