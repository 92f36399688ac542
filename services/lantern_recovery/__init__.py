"""The recovery service: finds runs that nobody drives and has executors take them up (SPEC L5, L7)."""
