"""What the journal said of runs that this executor does not know yet: a notice can overtake the answer to a start."""


class EarlyNotices:
    """Inbox notices for unknown runs, kept while a start is under way that may turn out to be theirs."""

    def __init__(self) -> None:
        self._count = 0
        self._noticed: dict[str, int] = {}  # run id: number of its last notice, in the order of these
        self._starts: dict[object, int] = {}  # the notices before each start under way, oldest start first

    @property
    def kept_count(self) -> int:
        """How many runs are remembered."""
        return len(self._noticed)

    def begin(self, start: object) -> None:
        """A start is under way from now on."""
        self._starts[start] = self._count

    def end(self, start: object) -> None:
        """It is no more; what only it could have asked for is forgotten."""
        self._starts.pop(start, None)
        before = next(iter(self._starts.values()), self._count)
        while self._noticed:
            run_id, number = next(iter(self._noticed.items()))
            if number > before:
                break
            del self._noticed[run_id]

    def add(self, run_id: str) -> None:
        """The inbox of an unknown run has new entries."""
        if not self._starts:
            return  # a run that was let go: whoever drives it next reads its inbox
        self._count += 1
        self._noticed.pop(run_id, None)
        self._noticed[run_id] = self._count

    def take(self, run_id: str) -> bool:
        """Whether there was a notice for a run that is known from now on."""
        return self._noticed.pop(run_id, None) is not None
