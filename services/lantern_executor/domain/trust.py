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
        self._has_lapsed = False
        self._is_revoked = False

    @property
    def unanswered_count(self) -> int:
        """How many pings of the stream may still be answered.

        Whether the journal is silent is told by their number, not by the time: while we stand still, none is sent.
        """
        return len(self._unanswered)

    def ping(self, number: int, now_s: float) -> None:
        """A ping goes out. Numbers grow."""
        self._unanswered[number] = now_s

    def pong(self, number: int, now_s: float) -> None:
        """A ping was answered. The journal answers the last of several, which answers those before it, too."""
        sent_s = self._unanswered.get(number)
        if sent_s is None:
            return
        self.answered(sent_s, now_s)
        for earlier in [each for each in self._unanswered if each <= number]:
            del self._unanswered[earlier]

    def answered(self, sent_s: float, answered_s: float) -> None:
        """The journal knew the session: when it was asked, and when its answer came, wherever that was heard."""
        self._has_lapsed = self._has_lapsed or not self.holds(answered_s)
        self._answered_s = max(self._answered_s, sent_s)

    def revoke(self) -> None:
        """The journal knows the session no more: nothing makes this trust hold again."""
        self._is_revoked = True

    def take_return(self, now_s: float) -> bool:
        """Whether it holds again after it had lapsed, as long as nobody was told so."""
        if not (self._has_lapsed and self.holds(now_s)):
            return False
        self._has_lapsed = False
        return True

    def holds(self, now_s: float) -> bool:
        """Whether a step may be begun."""
        return not self._is_revoked and now_s - self._answered_s < TRUST_SHARE * self.silence_s
