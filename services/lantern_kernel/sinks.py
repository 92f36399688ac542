"""What a failed request is documented to have done, by sink (SPEC E2): the table behind the growth of the key attempt.

Everything that is not listed is unknown. 409 is unknown because services answer it for a key whose first request is
still in flight; 408 and 5xx because the server may have worked on after it gave up on the reply.
"""

from typing import Literal

from lantern_kernel.retry import Outcome

HTTP_NOT_EXECUTED = frozenset({400, 401, 402, 403, 404, 405, 406, 410, 413, 414, 415, 422, 429})
"""Statuses with which an HTTP service says that it refused the request before doing anything (RFC 9110, RFC 6585)."""

Fault = Literal["connection_refused", "name_not_resolved", "timeout", "reset", "other"]
"""How a request can end without any answer."""

FAULTS_NOT_EXECUTED: frozenset[Fault] = frozenset({"connection_refused", "name_not_resolved"})
"""Faults that arise before the first byte of a request is sent."""


def http_succeeded(status: int) -> bool:
    """Whether a status completes a step; only 2xx do."""
    return 200 <= status <= 299


def http_outcome(status: int) -> Outcome:
    """What a request answered with this status other than 2xx has done."""
    return "not_executed" if status in HTTP_NOT_EXECUTED else "unknown"


def fault_outcome(fault: Fault) -> Outcome:
    """What a request that got no answer has done."""
    return "not_executed" if fault in FAULTS_NOT_EXECUTED else "unknown"
