"""What must hold of every run, whatever went wrong."""

from collections.abc import Iterable

from lantern_executor.domain.tail import Append
from lantern_kernel import kinds
from lantern_kernel.event import Event, find_chain_fault
from lantern_kernel.payloads import unpack
from oracle import waking
from oracle.tables import RunRow, Tables

_TAKES_IN = {kinds.SIGNAL_RECEIVED, kinds.CANCEL_REQUESTED, kinds.PAUSE_REQUESTED, kinds.RESUME_REQUESTED}

_STATES = {"SUCCEEDED": kinds.RUN_SUCCEEDED, "FAILED": kinds.RUN_FAILED, "CANCELLED": kinds.RUN_CANCELLED}


def without_wake_source(tables: Tables) -> Iterable[str]:
    """Waiting runs that nothing will ever wake (SPEC S3)."""
    for run in tables.runs.values():
        if run.state == "WAITING":
            why = _stranded(tables, run)
            if why:
                yield f"{run.run_id} waits for {run.waiting_on}: {why}"


def _stranded(tables: Tables, run: RunRow) -> str:
    rest = tables.inboxes.get(run.run_id, [])[run.consumed_inbox :]
    if any(entry.kind == "cancel" for entry in rest):
        return "its inbox holds a cancel"
    if run.waiting_on == "paused":
        # Only the last word counts: who paused it will resume it.
        said = [entry.kind for entry in rest if entry.kind in ("pause", "resume")]
        return "its inbox holds a resume" if said[-1:] == ["resume"] else ""
    if run.due_us is not None:
        return ""
    if run.waiting_on in ("capacity", "code_fix"):
        offers = waking.offers_of(tables, run)
        return "it is offered" if any(waking.can_help(run, offer.digest) for offer in offers) else ""
    if run.waiting_on == "operator":
        keys = {
            str(unpack(event.payload).facts.get("key"))
            for event in tables.events[run.run_id]
            if event.kind == kinds.STEP_WAITING and event.epoch == run.epoch
        }
        is_open = any(tables.receipts[key].state == "claimed" for key in keys if key in tables.receipts)
        return "" if is_open else "all is settled"
    return "nothing brings that about"


def of_histories(tables: Tables, acknowledged: Iterable[Append]) -> Iterable[str]:
    """What is wrong with what stands in the journal at the end."""
    for run in tables.runs.values():
        yield from _of_run(tables, run, tables.events[run.run_id])
    for append in acknowledged:
        stored = tables.events[append.run_id][append.first_seq - 1 : append.first_seq - 1 + len(append.events)]
        if [event.salt for event in stored] != [event.salt for event in append.events]:
            yield f"acknowledged and lost: {append.run_id} from {append.first_seq} on"
        if any(event.epoch != append.epoch for event in stored):
            yield f"acknowledged under epoch {append.epoch}, stored under another: {append.run_id}"


def _of_run(tables: Tables, run: RunRow, events: list[Event]) -> Iterable[str]:
    fault = find_chain_fault(run.run_id, events)
    if fault is not None:
        yield f"{run.run_id}: {fault}"
    ends = [event.seq for event in events if event.kind in kinds.TERMINAL]
    if not run.is_open and (ends != [len(events)] or _STATES[run.state] != events[-1].kind):
        yield f"{run.run_id} is {run.state} with terminal events at {ends} of {len(events)}"
    if run.is_open and ends:
        yield f"{run.run_id} is {run.state} though it ended at {ends}"
    epochs = [event.epoch for event in events]
    if epochs != sorted(epochs):
        yield f"{run.run_id}: epochs fall: {epochs}"
    grants = [event.epoch for event in events if event.kind == kinds.LEASE_GRANTED]
    if grants != list(range(1, len(grants) + 1)):
        yield f"{run.run_id}: grants of epochs {grants}"
    taken = [unpack(event.payload).facts["number"] for event in events if event.kind in _TAKES_IN]
    if run.state == "CANCELLED" and taken and taken[-1] == run.inbox_number and taken == sorted(set(taken)):
        taken = list(range(1, taken[-1] + 1))  # ended by the journal itself, perhaps: the rest matters no more
    if taken != list(range(1, len(taken) + 1)) or (not run.is_open and len(taken) != run.inbox_number):
        yield f"{run.run_id}: of {run.inbox_number} inbox entries {taken} were taken in"
    done = [event.step_id for event in events if event.kind in (kinds.STEP_COMPLETED, kinds.STEP_FAILED)]
    if len(done) != len(set(done)):
        yield f"{run.run_id}: a step ended twice: {done}"
