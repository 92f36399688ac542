"""Who needs a driver, who may have the lease, and what wakes a waiting run."""

import json

from lantern_journal.domain.leases import AgentOffer, Limits
from lantern_journal.domain.records import Orphan
from lantern_kernel import kinds
from lantern_kernel.errors import LanternError
from lantern_kernel.payloads import ParkFacts, RunErrorFacts, unpack
from oracle import agents
from oracle.tables import LockRow, RunRow, SessionRow, Tables


def wake(run: RunRow, reason: str, now_us: int) -> None:
    """WAITING to QUEUED."""
    run.state, run.waiting_on, run.due_us, run.error = "QUEUED", "", None, None
    run.wake_reason, run.recover_after_us, run.updated_us = reason, 0, now_us
    run.awaited_signals = ""


def is_called(waiting_on: str, signals: list[str], kind: str, name: str) -> bool:
    """Whether an entry of that kind (and, for a signal, name) is what a run waits for."""
    match kind:
        case "cancel":
            return True
        case "resume":
            return waiting_on in ("paused", "operator", "code_fix", "budget")
        case "signal" if signals:
            return name in signals and waiting_on in ("timer", "signal", "approval", "child", "operator")
        case "signal":
            return waiting_on == "signal"
        case "child" | "decision" | "update":
            return waiting_on in ("timer", "signal", "approval", "child", "operator")
        case _:
            return False


def is_alive(session: SessionRow | None, now_us: int, limits: Limits) -> bool:
    """Whether a session is open and was heard from within the silence."""
    return session is not None and not session.closed and now_us - session.seen_us < limits.silence_us


def is_takeable(tables: Tables, lock: LockRow | None, now_us: int, limits: Limits) -> bool:
    """Whether somebody else may be granted this lease.

    Released: yes. Not expired: no. Expired: not from a live session that opened it, nor from one that is not closed and
    has appended under it.
    """
    if lock is None or lock.worker_id == "":
        return True
    if lock.expires_us > now_us:
        return False
    holder = tables.sessions.get(lock.worker_id)
    if lock.opened:
        return not is_alive(holder, now_us, limits)
    return not tables.is_used(lock) or holder is None or holder.closed


def offers_of(tables: Tables, run: RunRow) -> list[AgentOffer]:
    """What sessions that take work and know the run's event level offer of its agent."""
    return [
        offer
        for session in tables.sessions.values()
        if session.tenant_id == run.tenant_id and not session.closed and not session.draining
        if session.event_level >= run.event_level
        for offer in session.agents
        if agents.is_of(tables, run.tenant_id, run.agent_name, offer)
    ]


def failed_last(run: RunRow) -> str:
    """The digest of the code that failed to replay it last."""
    return (run.failed_digests.split() or [""])[0]


def can_help(run: RunRow, digest: str) -> bool:
    """Whether code of that digest gives a waiting run a chance: SPEC L4."""
    if run.waiting_on == "capacity":
        return digest != failed_last(run)
    return run.waiting_on == "code_fix" and digest not in run.failed_digests.split()


def find_orphans(tables: Tables, limit: int, now_us: int, limits: Limits) -> list[Orphan]:
    """Runs that need a driver: each tenant's oldest, then each one's second, and so on."""
    found: list[tuple[int, int, str, Orphan]] = []
    turns: dict[str, int] = {}
    for run in sorted(tables.runs.values(), key=lambda run: (run.created_us, run.run_id)):
        if not _is_orphan(tables, run, now_us, limits):
            continue
        turn = turns[run.tenant_id] = turns.get(run.tenant_id, 0) + 1
        lock = tables.locks.get(run.run_id)
        was_driven = run.state == "RUNNING" and lock is not None and (lock.opened or tables.is_used(lock))
        orphan = Orphan(
            run_id=run.run_id,
            tenant_id=run.tenant_id,
            agent_name=run.agent_name,
            agent_version=run.agent_version,
            agent_digest=run.agent_digest,
            reason="crash" if was_driven else run.wake_reason,
            failed_digest=failed_last(run),
            event_level=run.event_level,
            program_kind=agents.versions(tables, run.tenant_id, run.agent_name)[0].program_kind,
        )
        found.append((turn, run.created_us, run.run_id, orphan))
    return [orphan for *_, orphan in sorted(found, key=lambda each: each[:3])][:limit]


def _is_orphan(tables: Tables, run: RunRow, now_us: int, limits: Limits) -> bool:
    if not run.is_open or run.recover_after_us > now_us:
        return False
    if run.state == "WAITING" and (run.due_us is None or run.due_us > now_us):
        return False
    return is_takeable(tables, tables.locks.get(run.run_id), now_us, limits)


def next_due_us(tables: Tables, after_us: int) -> int | None:
    """The first moment after `after_us` at which a run becomes an orphan by itself."""
    moments = [moment for run in tables.runs.values() if run.is_open for moment in (run.due_us, run.recover_after_us)]
    moments += [lock.expires_us for lock in tables.locks.values() if lock.worker_id and not lock.opened]
    return min((moment for moment in moments if moment is not None and moment > after_us), default=None)


def wake_late(tables: Tables, run: RunRow, now_us: int) -> bool:
    """Wakes a run that was just parked for something that had come before its park."""
    if run.waiting_on == "code_fix":
        failed = _digest_in(run.error) or run.agent_digest
        rest = [known for known in run.failed_digests.split() if known != failed]
        run.failed_digests = " ".join([failed, *rest][:16])
        if any(can_help(run, offer.digest) for offer in offers_of(tables, run)):
            wake(run, "upgrade", now_us)
            return True
    elif run.waiting_on == "operator" and _has_answer(tables, run):
        wake(run, "signal", now_us)
        return True
    return False


def _digest_in(error: bytes | None) -> str:
    details = json.loads(error).get("details", {}) if error is not None else {}
    digest = details.get("digest", "")
    return digest if len(digest) == 64 and set(digest) <= set("0123456789abcdef") else ""


def _has_answer(tables: Tables, run: RunRow) -> bool:
    """Whether a delivery that this drive left undecided is settled by now."""
    for event in tables.events[run.run_id]:
        if event.kind != kinds.STEP_WAITING or event.epoch != run.epoch:
            continue
        try:
            facts = unpack(event.payload).facts
        except LanternError:
            continue
        receipt = tables.receipts.get(str(facts.get("key", "")))
        if facts.get("on") == "operator" and receipt is not None and receipt.state != "claimed":
            return True
    return False


def park_of(run: RunRow, *, failed: bool) -> ParkFacts:
    """Why the journal parks a run that nobody can drive."""
    if failed:
        digest = failed_last(run)
        message = f"the code of {run.agent_name} that is offered failed to replay this run; it goes on with other code"
        error = RunErrorFacts(code="NONDETERMINISM", message=message, details={"digest": digest})
        return ParkFacts(waiting_on="code_fix", error=error, nothing_to_compensate=run.nothing_to_compensate)
    wanted = f"{run.agent_name}@{run.agent_version} at event level {run.event_level} or above"
    message = f"no live executor offers {wanted}; it goes on when one does"
    error = RunErrorFacts(code="NO_CAPACITY", message=message)
    return ParkFacts(waiting_on="capacity", error=error, nothing_to_compensate=run.nothing_to_compensate)
