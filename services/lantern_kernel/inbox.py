"""What others have to say to a run."""

from dataclasses import dataclass

from lantern_kernel.blobs import BlobRef


@dataclass(frozen=True, kw_only=True, slots=True)
class InboxEntry:
    """One entry of a run's inbox."""

    # Dense within the run, from 1.
    number: int
    # signal, cancel, pause, resume, decision, delegation, child or update.
    kind: str
    # For a signal or update: its name. For a decision or delegation: the approval's id. For a child: its step.
    name: str
    # JSON; may be empty. Of a decision, delegation or child: packed facts with the data, but for the number.
    payload: bytes
    # The blob that holds the payload, or for a child its data; see `payloads`.
    payload_blob: BlobRef | None = None
