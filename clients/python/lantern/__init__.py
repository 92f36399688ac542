"""What users import: the workflow SDK, the client and the CLI of Lantern."""
