"""The course of a run: program and replay core, turned into events, for whoever drives runs (executor, test kit)."""
