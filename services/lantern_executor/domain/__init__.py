"""What the executor decides without any I/O."""
