"""The kinds of event (SPEC J6) and what each means for a run. Unknown kinds are kept and shown, never dropped."""

RUN_STARTED = "run_started"
LEASE_GRANTED = "lease_granted"
STEP_STARTED = "step_started"
STEP_COMPLETED = "step_completed"
STEP_FAILED = "step_failed"
STEP_RETRYING = "step_retrying"
STEP_WAITING = "step_waiting"
MARKER_RECORDED = "marker_recorded"
TIMER_STARTED = "timer_started"
TIMER_FIRED = "timer_fired"
SIGNAL_RECEIVED = "signal_received"
NONDETERMINISM_DETECTED = "nondeterminism_detected"
CANCEL_REQUESTED = "cancel_requested"
PAUSE_REQUESTED = "pause_requested"
RESUME_REQUESTED = "resume_requested"
APPROVAL_REQUESTED = "approval_requested"
APPROVAL_DELEGATED = "approval_delegated"
APPROVAL_DECIDED = "approval_decided"
CHILD_STARTED = "child_started"
CHILD_COMPLETED = "child_completed"
UPDATE_RECEIVED = "update_received"
UPDATE_COMPLETED = "update_completed"
HISTORY_RESET = "history_reset"
CONFIDENCE_EVALUATED = "confidence_evaluated"
CONFIDENCE_GATE_BYPASSED = "confidence_gate_bypassed"
ANOMALY_DETECTED = "anomaly_detected"
BUDGET_RESERVED = "budget_reserved"
BUDGET_SETTLED = "budget_settled"
RUN_PARKED = "run_parked"
RUN_SUCCEEDED = "run_succeeded"
RUN_FAILED = "run_failed"
RUN_CANCELLED = "run_cancelled"

LEVEL = 2
"""The level of the kinds above (SPEC L4). It grows by one when a kind that replay reads is added; what a kind
means never changes. A run is driven only by code of its level or above, which so knows every kind in its history."""

TERMINAL = frozenset({RUN_SUCCEEDED, RUN_FAILED, RUN_CANCELLED})
"""After one of these a run takes no further event."""

ENDS_DRIVE = TERMINAL | {RUN_PARKED}
"""An append may end with one of these, and then ends the drive: the lease is released with it."""

JOURNAL_OWN = frozenset({RUN_STARTED, LEASE_GRANTED, HISTORY_RESET})
"""Only the journal writes these; a worker that appends one is refused."""

FROM_INBOX = frozenset(
    {
        SIGNAL_RECEIVED,
        CANCEL_REQUESTED,
        PAUSE_REQUESTED,
        RESUME_REQUESTED,
        APPROVAL_DELEGATED,
        APPROVAL_DECIDED,
        CHILD_COMPLETED,
        UPDATE_RECEIVED,
    }
)
"""By each of these a driver takes in one entry of the run's inbox; its payload names the entry's number."""

READ_BY_JOURNAL = ENDS_DRIVE | FROM_INBOX | {APPROVAL_REQUESTED}
"""All that the journal acts on; to it the payloads of the others are opaque."""

OBSERVED = frozenset({CONFIDENCE_EVALUATED, CONFIDENCE_GATE_BYPASSED, ANOMALY_DETECTED})
"""What a program notes down of its run."""

NOT_REPLAYED = frozenset(
    {
        RUN_STARTED,
        LEASE_GRANTED,
        RUN_PARKED,
        NONDETERMINISM_DETECTED,
        HISTORY_RESET,
        BUDGET_RESERVED,
        BUDGET_SETTLED,
    }
)
"""Events that answer no command of a program."""

KNOWN = frozenset(value for name, value in list(globals().items()) if name.isupper() and isinstance(value, str))
