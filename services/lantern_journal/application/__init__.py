"""What the journal does, over its ports."""
