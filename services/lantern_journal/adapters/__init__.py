"""The journal's databases, clock and randomness."""
