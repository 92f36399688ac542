"""The executor service: starts runs and drives them, step by step, on top of the journal."""
