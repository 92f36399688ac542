"""What the sweep accepts of the workers that the journal lists: they said it of themselves, so it is checked."""

from lantern_kernel.errors import InvalidField
from lantern_recovery.domain.worker import Worker


def worker(value: Worker) -> Worker:
    """Returns a worker that can be called; raises InvalidField otherwise, and the sweep does without it."""
    host, colon, port = value.address.rpartition(":")
    if not (host and colon and port.isdigit() and 0 < int(port) < 65_536):
        raise InvalidField("workers.address", f"{value.address!r} is no host:port", worker_id=value.worker_id)
    if value.capacity < 1:
        raise InvalidField("workers.capacity", f"{value.capacity} is below 1", worker_id=value.worker_id)
    return value
