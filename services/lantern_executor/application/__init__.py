"""What the executor does: starts runs, drives them, and lets them go."""
