"""The one exception tree: an error with a reason that programs act on and facts that say what and where."""

from collections.abc import Mapping

from lantern_kernel import reasons


class LanternError(Exception):
    """Something that Lantern refuses or cannot do.

    Args:
        reason: A constant of `lantern_kernel.reasons`.
        message: For people: what is wrong, with which value, and what would be right.
        retry_after_s: Seconds after which the same request makes sense again; None where repeating cannot help.
        details: The facts of that reason; `field` names the request field or the JSON path at fault.
    """

    def __init__(self, reason: str, message: str, *, retry_after_s: float | None = None, **details: str | int) -> None:
        super().__init__(f"{reason}: {message}")
        self.reason = reason
        self.message = message
        self.retry_after_s = retry_after_s
        self.details: Mapping[str, str] = {key: str(value) for key, value in details.items()}


class InvalidField(LanternError):
    """A field of a request that is not acceptable as it is."""

    def __init__(self, field: str, message: str, *, reason: str = reasons.INVALID_FIELD, **details: str | int) -> None:
        super().__init__(reason, f"{field}: {message}", retry_after_s=None, field=field, **details)
        self._field, self._what, self._facts = field, message, details

    def below(self, path: str) -> "InvalidField":
        """The same fault, its field seen from further out: what checks many values names no path until one is bad."""
        return InvalidField(f"{path}.{self._field}", self._what, reason=self.reason, **self._facts)
