"""What the journal decides, as pure functions over values."""
