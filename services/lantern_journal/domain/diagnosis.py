"""What is wrong with a run, judged by its events, its rows and whoever holds it; and with the database. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from lantern_journal.domain import leases
from lantern_journal.domain.findings import Check, Finding, Severity
from lantern_journal.domain.leases import AgentOffer, Session
from lantern_journal.domain.projection import COLUMNS, RETARGETED, LockRow, RunFold, RunRow, rebuilt, rebuilt_lock
from lantern_journal.domain.run_state import FINAL, RunState
from lantern_kernel.payloads import WAITING_ON

SLACK_US = 5_000_000
"""Between what was read and the time that it is judged by."""

TRANSACTION_OLD_US = 60_000_000
"""A transaction older than this keeps vacuum from its work."""

XMIN_AGE_MAX = 10_000_000
"""Transactions since the oldest snapshot that somebody still holds: dead rows since then cannot be taken away."""


@dataclass(frozen=True, kw_only=True, slots=True)
class RunFacts:
    """What is kept of a run beside its events, read in one snapshot with the last of them."""

    # Its row; None where there is none.
    row: RunRow | None
    # Its events were moved to an archive.
    is_archived: bool
    # Its lock; None where there is none.
    lock: LockRow | None
    # The session of the lock's holder; None where there is none.
    session: Session | None
    # The number of its last inbox entry, and the kinds of those that are not consumed.
    inbox_last: int
    # See `inbox_last`.
    unconsumed: frozenset[str]
    # Code that has failed on it.
    failed_digests: str
    # Where it waits for code: what live workers offer in its tenant.
    offers: tuple[AgentOffer, ...]
    # The journal's time, microseconds.
    now_us: int
    # Its approvals: where each was asked for, and whether it is pending.
    approvals: Mapping[str, tuple[int, bool]] = field(default_factory=dict[str, tuple[int, bool]])
    # The SHA-256 of the blobs that are there and are noted as named by it.
    blobs: frozenset[str] = frozenset()
    # It waits for an operator, and one of the deliveries that it left undecided is settled.
    is_settled: bool = False
    # It is open and not abandoned, its parent has ended, and nobody has told it to.
    is_left: bool = False
    # How many events its archive holds; None where there is none.
    archived_events: int | None = None
    # There are still events of it.
    has_events: bool = True


def judge(fold: RunFold, facts: RunFacts) -> list[Finding]:
    """What there is to say of a run whose events have all been read."""
    run_id = fold.run_id
    found = [Finding(check=Check.CHAIN, subject=subject, message=said, run_id=run_id) for subject, said in fold.faults]
    if facts.row is None:
        message = f"{fold.seq} events, and no row that says whose run it is"
        return [*found, Finding(check=Check.PROJECTION, subject="row", message=message, run_id=run_id)]
    if facts.is_archived:
        return found + _judge_archived(run_id, facts, facts.row)
    if not fold.seq:
        message = "the run has no events"
        return [*found, Finding(check=Check.CHAIN, subject="events", message=message, run_id=run_id)]
    # From broken events nothing is rebuilt.
    is_mendable = not fold.faults
    found += _judge_row(fold, facts, facts.row, is_mendable=is_mendable)
    found += _judge_lock(fold, facts, is_mendable=is_mendable)
    if facts.row.state not in FINAL:
        found += _judge_waking(run_id, facts, facts.row)
    return found + _judge_approvals(fold, facts, facts.row) + _judge_blobs(fold, facts)


def _judge_archived(run_id: str, facts: RunFacts, row: RunRow) -> list[Finding]:
    if facts.archived_events != row.end_seq:
        message = f"its archive holds {facts.archived_events or 0} events, the run had {row.end_seq or 0}"
        return [Finding(check=Check.ARCHIVE, subject="events", message=message, run_id=run_id)]
    if facts.has_events or facts.approvals:
        message = "it is archived, and something of it was left in the tables"
        return [Finding(check=Check.ARCHIVE, subject="left", message=message, run_id=run_id)]
    return []


def _judge_approvals(fold: RunFold, facts: RunFacts, row: RunRow) -> list[Finding]:
    def fault(subject: str, message: str) -> Finding:
        return Finding(check=Check.APPROVAL, subject=subject, message=message, run_id=fold.run_id)

    kept = {approval_id: seq for approval_id, (seq, _) in facts.approvals.items()}
    wrong = sorted(name for name in fold.asked.keys() | kept.keys() if fold.asked.get(name) != kept.get(name))
    found = [
        fault("requested", f"approval {name}: kept as of event {kept.get(name)}, is of {fold.asked.get(name)}")
        for name in wrong
    ]
    if row.state in FINAL:
        pending = sorted(name for name, (_, is_pending) in facts.approvals.items() if is_pending)
        found += [fault("pending", f"approval {name} is pending, and the run has ended") for name in pending]
    return found


def _judge_blobs(fold: RunFold, facts: RunFacts) -> list[Finding]:
    return [
        Finding(
            check=Check.BLOB,
            subject="named",
            message=f"an event names blob {sha256}, which is not there, or not noted as named by the run",
            run_id=fold.run_id,
        )
        for sha256 in sorted(fold.blobs - facts.blobs)
    ]


def _judge_row(fold: RunFold, facts: RunFacts, row: RunRow, *, is_mendable: bool) -> list[Finding]:
    should = rebuilt(fold, row, facts.lock, facts.inbox_last)
    return [
        Finding(
            check=Check.PROJECTION,
            subject=column,
            message=f"is {shown(getattr(row, column))}, by the events {shown(getattr(should, column))}",
            run_id=fold.run_id,
            mendable=is_mendable,
        )
        for column in COLUMNS
        if getattr(row, column) != getattr(should, column)
    ]


def shown(value: object) -> str:
    """A value for people."""
    text = value.decode(errors="replace") if isinstance(value, bytes) else "none" if value is None else repr(value)
    return text if len(text) <= 200 else text[:197] + "..."


def _judge_lock(fold: RunFold, facts: RunFacts, *, is_mendable: bool) -> list[Finding]:
    lock, run_id = facts.lock, fold.run_id

    def fault(check: Check, subject: str, message: str, *, mendable: bool = False) -> Finding:
        return Finding(check=check, subject=subject, message=message, run_id=run_id, mendable=mendable)

    should = rebuilt_lock(fold, lock)
    if lock is None:
        if should is None:
            return []
        return [fault(Check.LEASE, "lock", "leases were granted, and there is no lock", mendable=is_mendable)]
    if lock.epoch != fold.epoch:
        message = f"the lock is of epoch {lock.epoch}, the last grant of {fold.epoch}"
        return [fault(Check.LEASE, "epoch", message, mendable=is_mendable)]
    if should != lock:
        why = f"whose lease is {fold.holder}'s" if fold.holder else "that nobody drives"
        return [fault(Check.LEASE, "holder", f"{lock.worker_id} holds a run {why}", mendable=is_mendable)]
    if not lock.worker_id:
        return []
    session = facts.session
    if session is None or session.number < lock.session_number:
        if lock.expires_us > facts.now_us + SLACK_US:
            return [fault(Check.SESSION, "session", f"the session of {lock.worker_id} is not there, its lease is")]
    elif session.closed and lock.expires_us > facts.now_us + SLACK_US:
        return [fault(Check.SESSION, "closed", f"the lease of {lock.worker_id} outlives its closed session")]
    if lock.expires_us <= facts.now_us:
        message = f"the lease of {lock.worker_id} has expired; recovery finds the run another driver"
        note = Finding(check=Check.LEASE, subject="expired", message=message, severity=Severity.NOTE, run_id=run_id)
        return [note]
    return []


def _judge_waking(run_id: str, facts: RunFacts, row: RunRow) -> list[Finding]:
    """Whether there is something that makes an open run go on (SPEC S3). Who is not WAITING is swept by recovery."""
    if facts.is_left:
        message = f"its parent {row.parent_run_id} has ended, and nobody has told it to end"
        return [Finding(check=Check.WAKE_SOURCE, subject="parent", message=message, run_id=run_id)]
    if row.state != RunState.WAITING.value:
        return []

    def asleep(subject: str, message: str) -> list[Finding]:
        return [Finding(check=Check.WAKE_SOURCE, subject=subject, message=message, run_id=run_id)]

    if row.waiting_on not in WAITING_ON:
        return asleep("waiting_on", f"waits on {shown(row.waiting_on)}, which nothing ends")
    if row.waiting_on == "timer" and row.due_us is None:
        return asleep("due", "waits on a timer, and has no due time")
    if row.waiting_on == "operator" and facts.is_settled:
        return asleep("operator", "waits for an operator, and what it waits for is settled")
    # Without anybody who can drive it, a run waits for one also with a cancel in its inbox: to compensate takes code.
    if "cancel" in facts.unconsumed and row.waiting_on not in RETARGETED:
        return asleep("cancel", "sleeps, and a cancel lies in its inbox")
    failed = leases.failed_last(facts.failed_digests)
    if row.waiting_on == "capacity" and leases.can_drive(facts.offers, failed):
        return asleep("capacity", "waits for a worker that offers its agent, and there is one")
    if row.waiting_on == "code_fix" and leases.is_fixed_by(facts.offers, facts.failed_digests):
        return asleep("code_fix", "waits for other code, and a worker offers some")
    return []


@dataclass(frozen=True, kw_only=True, slots=True)
class DatabaseFacts:
    """How the database itself is."""

    # What SQLite's integrity_check found; empty where it found nothing, and on PostgreSQL.
    damage: tuple[str, ...] = ()
    # What this release needs, and the database has not been migrated to; and what is pending, but not needed.
    missing_revisions: str = ""
    # See `missing_revisions`.
    pending_revisions: str = ""
    # What the tables differ in from those that this release uses.
    differences: tuple[str, ...] = ()
    # PostgreSQL: for how long the oldest transaction has been open, microseconds, and who has it open.
    oldest_transaction_us: int = 0
    # See `oldest_transaction_us`.
    oldest_transaction_of: str = ""
    # PostgreSQL: how many transactions ago the oldest snapshot that is still held was taken, and what holds it.
    xmin_age: int = 0
    # See `xmin_age`.
    xmin_of: str = ""
    # PostgreSQL: rows of the feed of transactions that this server has not begun; of many, that there are many.
    feed_ahead: int = 0
    # Open sessions that have been silent for longer than any journal lets them.
    silent_workers: tuple[str, ...] = ()


def judge_database(facts: DatabaseFacts) -> list[Finding]:
    """What there is to say of the database."""
    found = [Finding(check=Check.DATABASE, subject="integrity", message=line) for line in facts.damage]
    found += [Finding(check=Check.DATABASE, subject="schema", message=line) for line in facts.differences]
    if facts.missing_revisions:
        found.append(Finding(check=Check.DATABASE, subject="migrations", message=facts.missing_revisions))
    if facts.pending_revisions:
        pending = facts.pending_revisions
        found.append(Finding(check=Check.DATABASE, subject="migrations", message=pending, severity=Severity.NOTE))
    if facts.oldest_transaction_us > TRANSACTION_OLD_US:
        seconds = facts.oldest_transaction_us // 1_000_000
        message = f"a transaction of {facts.oldest_transaction_of} has been open for {seconds} s: vacuum waits for it"
        found.append(Finding(check=Check.DATABASE, subject="oldest_transaction", message=message))
    if facts.xmin_age > XMIN_AGE_MAX:
        message = f"{facts.xmin_of} holds a snapshot {facts.xmin_age} transactions old: dead rows cannot be taken away"
        found.append(Finding(check=Check.DATABASE, subject="xmin", message=message))
    if facts.feed_ahead:
        message = (
            f"{facts.feed_ahead} rows or more came from another server, and nobody who follows sees them;"
            " a journal that starts sets that right"
        )
        found.append(Finding(check=Check.FEED, subject="restored", message=message))
    found += [
        Finding(check=Check.SESSION, subject="silent", message=f"the session of {worker} is silent, and still open")
        for worker in facts.silent_workers
    ]
    return found
