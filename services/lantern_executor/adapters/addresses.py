"""The journal processes that a worker may speak to, and the one that it speaks to now."""

from collections.abc import Sequence


class JournalAddresses:
    """Some `host:port`, all of the same journal; there is always a present one.

    The session decides: where it breaks or is asked to move, everything goes to the next one.
    """

    def __init__(self, addresses: Sequence[str]) -> None:
        assert addresses, "at least one"
        self._addresses = tuple(addresses)
        self._at = 0

    def __len__(self) -> int:
        return len(self._addresses)

    @property
    def present(self) -> str:
        """The one to speak to."""
        return self._addresses[self._at]

    @property
    def in_order(self) -> tuple[str, ...]:
        """All, the present one first, each followed by the one to be tried after it."""
        return self._addresses[self._at :] + self._addresses[: self._at]

    def go_on(self) -> None:
        """Speaks to the next one from now on."""
        self._at = (self._at + 1) % len(self._addresses)
