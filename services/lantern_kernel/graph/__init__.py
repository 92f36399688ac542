"""Graphs as programs: their definition, what is wrong with one, its expressions, and the interpreter (SPEC 7.1)."""
