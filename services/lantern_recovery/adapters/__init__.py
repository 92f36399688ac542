"""The ports over gRPC and the process's own clock."""
