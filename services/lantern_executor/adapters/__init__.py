"""The executor's connections to the outside: journal, programs, steps, clock."""
