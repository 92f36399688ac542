"""What recovery does: passes, the loop that makes them, and the watch that hurries it."""
