"""What tests of workflows are made of: the engine in memory, with time that is skipped and faults on purpose."""
