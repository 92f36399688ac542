"""How long the leases of a stream's worker are certain to be its own (SPEC L3)."""

TRUST_SHARE = 0.9
"""No step is begun this share of the journal's patience (10 s unless set otherwise) after the last answered ping was
sent: by then nobody else can have been granted our leases."""

SILENCE_S_DEFAULT = 10.0


class Trust:
    """What the pings of one attached stream prove. Times are monotonic seconds.

    Args:
        now_s: When the attach was sent; its answer counts as that of a ping.
    """

    def __init__(self, now_s: float) -> None:
        self.silence_s = SILENCE_S_DEFAULT  # after which the journal gives our leases away
        self._answered_s = now_s  # when the last answered ping was sent
        self._unanswered: dict[int, float] = {}

    @property
    def unanswered_count(self) -> int:
        """How many pings may still be answered."""
        return len(self._unanswered)

    def ping(self, number: int, now_s: float) -> None:
        """A ping goes out. Numbers grow."""
        self._unanswered[number] = now_s

    def pong(self, number: int) -> None:
        """A ping was answered. The journal answers the last of several, which answers those before it, too."""
        sent_s = self._unanswered.get(number)
        if sent_s is None:
            return
        self._answered_s = max(self._answered_s, sent_s)
        for earlier in [each for each in self._unanswered if each <= number]:
            del self._unanswered[earlier]

    def holds(self, now_s: float) -> bool:
        """Whether a step may be begun."""
        return now_s - self._answered_s < TRUST_SHARE * self.silence_s

    def is_silent(self, now_s: float) -> bool:
        """Whether no ping was answered for as long as the journal bears silence."""
        return now_s - self._answered_s > self.silence_s
