"""The command `lantern`."""
