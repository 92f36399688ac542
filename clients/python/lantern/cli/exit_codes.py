"""Exit codes of the command, for scripts."""

from lantern_kernel import reasons

OK = 0
RUN_FAILED = 1
"""A run that was shown or waited for ended FAILED or CANCELLED; or `up` could not go on."""
REFUSED = 2
"""Wrong usage, or an input that is not acceptable as it is."""
NOT_FOUND = 3
UNAVAILABLE = 4
"""No service answered; the same command may be repeated."""
FAULT = 5
"""A fault of Lantern's own."""
READER_GONE = 141
"""As shells report a program that wrote to a closed pipe: 128 + SIGPIPE."""

_BY_REASON = {
    reasons.RUN_NOT_FOUND: NOT_FOUND,
    reasons.AGENT_NOT_FOUND: NOT_FOUND,
    reasons.APPROVAL_NOT_FOUND: NOT_FOUND,
    reasons.QUERY_NOT_FOUND: NOT_FOUND,
    reasons.UNAVAILABLE: UNAVAILABLE,
    reasons.UNKNOWN_OUTCOME: UNAVAILABLE,
    reasons.DEADLINE_EXCEEDED: UNAVAILABLE,
    reasons.EXECUTOR_BUSY: UNAVAILABLE,
    reasons.INTERNAL: FAULT,
    reasons.UNIMPLEMENTED: FAULT,
    reasons.HISTORY_UNREADABLE: FAULT,
}


def exit_code(reason: str) -> int:
    """The exit code of an error with that reason."""
    return _BY_REASON.get(reason, REFUSED)
