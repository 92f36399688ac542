"""The gRPC shell that all services share: server, interceptors, error map, channels, settings, logs."""
