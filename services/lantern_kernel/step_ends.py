"""How one attempt of a step can end."""

from dataclasses import dataclass

from lantern_kernel.blobs import BlobRef
from lantern_kernel.retry import Failure


# Not frozen, which would more than double what making one costs: there are some for every step.
@dataclass(kw_only=True, slots=True)
class Completed:
    """The step has a result."""

    # JSON, exactly as it is recorded; empty where only the blob is known.
    output: bytes
    # The blob that holds it, where it is too large for an event.
    blob: BlobRef | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Undecided:
    """Whether an earlier delivery arrived is not known, and its author wants to be asked (`claim="ask"`)."""

    # The key of the claim in question.
    key: str


StepEnd = Completed | Failure | Undecided
