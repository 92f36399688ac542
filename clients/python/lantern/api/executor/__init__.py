"""Generated from protos/lantern/api; do not edit."""
