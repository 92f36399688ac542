"""The journal's three gRPC services."""
