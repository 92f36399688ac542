"""The journal's store in plain Python: an oracle for the databases, and the database of the simulation."""
