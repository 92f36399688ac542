"""The journal service: the authority over runs, events, leases, sessions, inboxes and side effects (SPEC 3, 4)."""
