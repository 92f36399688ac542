"""All services in one process on one seeded event loop: simulated time, network, database, crashes."""
