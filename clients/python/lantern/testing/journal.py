"""The journal in memory: it judges, chains and wakes as the real one does, for one process and by a given clock.

Pure: no I/O, no clock, no randomness. It knows runs, their events as a hash chain, leases as epochs, inboxes,
approvals, claims on deliveries and blobs. What it leaves out is what one process does not need: sessions, tenants,
pages, archives.
"""

from collections.abc import Callable, Sequence
from hashlib import sha256
from typing import Any

from lantern.testing.stored import Approval, Claim, Entry, StoredRun
from lantern.testing.waking import CANCEL, CHILD, DECISION, PAUSE, PROGRAM_WAITS, RESUME, SIGNAL, ends_at_once, wakes
from lantern_kernel import chain, kinds, payloads, reasons
from lantern_kernel.blobs import BlobRef, Content
from lantern_kernel.bounds import CHILD_DEPTH_MAX, EVENTS_PER_RUN_MAX
from lantern_kernel.errors import InvalidField, LanternError
from lantern_kernel.event import Event, NewEvent
from lantern_kernel.payloads import ApprovalFacts, ChildFacts, DecisionFacts, ParkFacts, RunErrorFacts

CANCELLED = RunErrorFacts(code=reasons.CANCEL_REQUESTED, message="cancelled on request")

_STEP_ENDS = frozenset({kinds.STEP_COMPLETED, kinds.STEP_FAILED})

_STATE_AFTER = {
    kinds.RUN_PARKED: "WAITING",
    kinds.RUN_SUCCEEDED: "SUCCEEDED",
    kinds.RUN_FAILED: "FAILED",
    kinds.RUN_CANCELLED: "CANCELLED",
}


class MemoryJournal:
    """See the module.

    Args:
        now_us: The journal's time, microseconds since the epoch.
    """

    def __init__(self, now_us: Callable[[], int]) -> None:
        self.runs: dict[str, StoredRun] = {}
        self.claims: dict[str, Claim] = {}
        self.blobs: dict[BlobRef, bytes] = {}
        self._now_us = now_us
        self._requests: dict[str, str] = {}
        self._salts = 0

    # Runs and what drives them.

    def create(
        self,
        agent_name: str,
        agent_digest: str,
        content: Content,
        *,
        workflow_id: str,
        request_id: str,
        parent: tuple[str, str] | None = None,
        is_abandoned: bool = False,
        durability: str = "sync",
    ) -> StoredRun:
        """A new run, QUEUED; the one that the same request made before; WORKFLOW_ID_IN_USE.

        Args:
            agent_name: What it executes.
            agent_digest: The version that it pins.
            content: Its input.
            workflow_id: The user's own name for the work; may be empty.
            request_id: Names the request.
            parent: The run and the step that begin it as a child; CHILD_TOO_DEEP where it has 5 above it.
            is_abandoned: Whether it goes on when that run ends.
            durability: When its events are committed: sync, async or exit.
        """
        if request_id in self._requests:
            return self.runs[self._requests[request_id]]
        depth = self.runs[parent[0]].depth + 1 if parent else 0
        if depth > CHILD_DEPTH_MAX:
            message = f"a run at depth {depth - 1} starts no others: at most {CHILD_DEPTH_MAX} are below one another"
            raise LanternError(reasons.CHILD_TOO_DEEP, message, depth=depth)
        for other in self.runs.values():
            if workflow_id and other.workflow_id == workflow_id and other.is_open:
                message = f"workflow id {workflow_id} belongs to the open run {other.run_id}"
                raise LanternError(reasons.WORKFLOW_ID_IN_USE, message, run_id=other.run_id)
        run_id = f"0190b5f0-0000-7000-8000-{len(self.runs) + 1:012x}"
        inline, blob = (b"", content) if isinstance(content, BlobRef) else (content, None)
        run = StoredRun(
            run_id=run_id,
            workflow_id=workflow_id,
            agent_name=agent_name,
            agent_digest=agent_digest,
            input=inline,
            input_blob=blob,
            parent=parent,
            depth=depth,
            is_abandoned=is_abandoned,
        )
        self.runs[run_id], self._requests[request_id] = run, run_id
        facts = {"agent": agent_name, "version": 1, "digest": agent_digest}
        facts |= {"workflowId": workflow_id, "requestId": request_id, "traceparent": ""}
        facts |= {} if durability == "sync" else {"durability": durability}
        self._write(run, [self._own(kinds.RUN_STARTED, payloads.pack(facts, content))])
        return run

    def run(self, run_id: str) -> StoredRun:
        """The run; RUN_NOT_FOUND."""
        if run_id not in self.runs:
            raise LanternError(reasons.RUN_NOT_FOUND, f"there is no run {run_id}", field="run_id", run_id=run_id)
        return self.runs[run_id]

    def grant(self, run_id: str, worker_id: str, reason: str) -> int:
        """A lease for a worker, whoever holds the present one; its epoch. RUN_CLOSED."""
        run = self.run(run_id)
        if not run.is_open:
            raise _closed(run)
        run.epoch += 1
        run.is_held = True
        facts = {"worker": worker_id, "session": 1, "reason": reason}
        self._write(run, [self._own(kinds.LEASE_GRANTED, payloads.pack(facts))])
        run.state, run.park, run.error, run.cause = "RUNNING", None, None, "crash"
        return run.epoch

    def release(self, run_id: str, epoch: int) -> None:
        """Hands a run back; LEASE_LOST where it is another's."""
        run = self._held(run_id, epoch)
        run.is_held, run.state = False, "QUEUED"

    def expire(self, run_id: str) -> None:
        """The worker that holds a run is gone."""
        run = self.run(run_id)
        if run.is_held:
            run.is_held, run.state, run.cause = False, "QUEUED", "crash"

    def reset(self, run_id: str, to_seq: int) -> None:
        """Passes over what a run that waits for other code recorded after an event, and queues it; INVALID_FIELD."""
        run = self.run(run_id)
        if run.waiting_on != "code_fix":
            raise InvalidField("run", f"only a run that waits on code_fix is reset; it is {run.state}{run.waiting_on}")
        if not 1 <= to_seq <= len(run.events):
            raise InvalidField("from_event", f"{to_seq} is none of the events 1 to {len(run.events)}")
        self._write(run, [self._own(kinds.HISTORY_RESET, payloads.pack({"toSeq": to_seq}))])
        kept = run.events[:to_seq]
        run.ended_steps = {event.step_id for event in kept if event.kind in _STEP_ENDS}
        self.upgrade(run_id)

    def upgrade(self, run_id: str) -> None:
        """Other code is there: a run that waits for that is queued."""
        run = self.run(run_id)
        if run.waiting_on == "code_fix":
            run.state, run.cause = "QUEUED", "upgrade"

    def append(
        self,
        run_id: str,
        epoch: int,
        first_seq: int,
        previous_digest: bytes,
        events: Sequence[NewEvent],
        consumed_inbox_number: int,
    ) -> None:
        """Takes events in whole, on top of the one named, or not at all (SPEC J2); a repeat changes nothing.

        Raises:
            LanternError: LEASE_LOST, RUN_CLOSED, APPEND_CONFLICT, INBOX_AHEAD, CANCEL_REQUESTED, EVENTS_FULL,
                BLOB_NOT_FOUND; INVALID_FIELD where the epoch was never granted. Judged in the order of SPEC J2.
        """
        run = self.run(run_id)
        assert events, "an append holds events"
        if epoch < run.epoch:
            raise _lost(run_id, f"epoch {epoch} is over: the run is at {run.epoch}")
        if first_seq <= len(run.events):
            stored = run.events[first_seq - 1 : first_seq - 1 + len(events)]
            same = [(*_content(old), old.epoch) for old in stored] == [(*_content(new), epoch) for new in events]
            if same:
                return
        self._judge_place(run, epoch, first_seq, previous_digest, events)
        last = events[-1].kind
        taken_in, cancels = self._taken_in(run, events)
        if last in kinds.ENDS_DRIVE:
            if consumed_inbox_number > len(run.inbox):
                message = f"{consumed_inbox_number} is above {len(run.inbox)}, the number of the last entry"
                raise InvalidField("consumed_inbox_number", message)
            if max(taken_in, consumed_inbox_number) < len(run.inbox):
                message = f"the inbox holds entries up to {len(run.inbox)}, consumed are those up to {taken_in}"
                raise LanternError(reasons.INBOX_AHEAD, message, last_inbox_number=len(run.inbox))
            if last == kinds.RUN_SUCCEEDED and cancels:
                raise LanternError(reasons.CANCEL_REQUESTED, "a run that is being cancelled cannot succeed")
        requests = self._requests_of(run, events)
        self._write(run, events)
        run.taken_in, run.is_cancel_requested = max(run.taken_in, taken_in), cancels
        run.approvals |= requests
        if last in kinds.ENDS_DRIVE:
            self._end_drive(run, events[-1])

    def _judge_place(
        self, run: StoredRun, epoch: int, first_seq: int, previous_digest: bytes, events: Sequence[NewEvent]
    ) -> None:
        if not run.is_open:
            raise _closed(run)
        if epoch > run.epoch:
            raise InvalidField("epoch", f"{epoch} was never granted: the run is at {run.epoch}", run_id=run.run_id)
        if not run.is_held:
            raise _lost(run.run_id, f"epoch {epoch} has ended")
        head = len(run.events)
        if first_seq != head + 1 or previous_digest != run.events[-1].digest:
            message = f"the run's last event is {head}; seq {first_seq} does not go on top of it as named"
            raise LanternError(reasons.APPEND_CONFLICT, message, run_id=run.run_id, head_seq=head)
        if head + len(events) > EVENTS_PER_RUN_MAX and events[-1].kind not in kinds.ENDS_DRIVE:
            raise LanternError(reasons.EVENTS_FULL, f"a run has at most {EVENTS_PER_RUN_MAX} events")
        for event in events:
            if event.kind in kinds.JOURNAL_OWN:
                raise InvalidField("events", f"only the journal writes {event.kind}")
            blob = payloads.named_blob(event.payload)
            if blob is not None and blob not in self.blobs:
                raise LanternError(reasons.BLOB_NOT_FOUND, f"blob {blob} is not kept here")

    def _taken_in(self, run: StoredRun, events: Sequence[NewEvent]) -> tuple[int, bool]:
        """The last entry that these events take in, 0 for none, and whether the run is to be cancelled after them."""
        taken_in, cancels = 0, run.is_cancel_requested
        for event in events:
            if event.kind in kinds.FROM_INBOX:
                taken_in = max(taken_in, int(payloads.unpack(event.payload).facts["number"]))
                cancels = cancels or event.kind == kinds.CANCEL_REQUESTED
        return taken_in, cancels

    def _requests_of(self, run: StoredRun, events: Sequence[NewEvent]) -> dict[str, Approval]:
        found: dict[str, Approval] = {}
        for event in events:
            if event.kind != kinds.APPROVAL_REQUESTED:
                continue
            unpacked = payloads.unpack(event.payload)
            facts = ApprovalFacts.from_facts(unpacked.facts)
            if facts.approval_id in found or facts.approval_id in run.approvals:
                raise InvalidField("approvalId", f"{facts.approval_id!r} was asked for before", run_id=run.run_id)
            found[facts.approval_id] = Approval(
                facts=facts, step_id=event.step_id, data=unpacked.data, assignee=facts.assignee
            )
        return found

    def _end_drive(self, run: StoredRun, last: NewEvent) -> None:
        run.is_held, run.state = False, _STATE_AFTER[last.kind]
        unpacked = payloads.unpack(last.payload)
        if last.kind == kinds.RUN_PARKED:
            run.park = ParkFacts.unpack(last.payload)
            run.error, run.cause = run.park.error, "timer"
            return
        if last.kind == kinds.RUN_SUCCEEDED:
            run.result = unpacked.content or b""
        else:
            run.error = RunErrorFacts.from_facts(unpacked.facts)
        for approval in run.approvals.values():
            if approval.state == "PENDING":
                approval.state = "WITHDRAWN"
        if last.kind == kinds.RUN_SUCCEEDED and unpacked.facts.get("continueAsNew") is True:
            self._continue(run, unpacked.facts.get("carry", []))
        elif run.parent is not None:
            self._tell_parent(run, run.parent)
        for child in list(self.runs.values()):
            if child.is_open and child.parent is not None and child.parent[0] == run.run_id and not child.is_abandoned:
                self.send(child.run_id, CANCEL, request_id=f"parent#{run.run_id}")

    def _continue(self, run: StoredRun, carried: Sequence[int]) -> None:
        """The run that goes on, with the signals that nobody took."""
        after = self.create(
            run.agent_name,
            run.agent_digest,
            run.result,
            workflow_id=run.workflow_id,
            request_id=f"continue:{run.run_id}",
            parent=run.parent,
            is_abandoned=run.is_abandoned,
            durability=run.durability,
        )
        run.continued_as, after.continued_from = after.run_id, run.run_id
        for seq in sorted(carried):
            unpacked = payloads.unpack(run.events[seq - 1].payload)
            name, content = str(unpacked.facts["name"]), unpacked.content or b"null"
            self.send(after.run_id, SIGNAL, name, content, request_id=f"carry:{seq}")

    def _tell_parent(self, run: StoredRun, parent: tuple[str, str]) -> None:
        """A child that has ended tells the run that began it."""
        run_id, step_id = parent
        if not self.runs[run_id].is_open:
            return
        facts = ChildFacts(run_id=run.run_id, state=run.state, error=run.error)
        said = payloads.pack(facts.to_facts(), run.result if run.state == "SUCCEEDED" else None)
        self.send(run_id, CHILD, step_id, said, request_id=f"child#{step_id}")

    # What others say.

    def send(self, run_id: str, kind: str, name: str = "", content: bytes | BlobRef = b"", *, request_id: str) -> int:
        """Puts an entry into a run's inbox, and wakes or ends the run where it does that; the entry's number.

        0 for a cancel of a run that has ended; a repeat of a request has the number of the first. RUN_CLOSED.
        """
        run = self.run(run_id)
        before = next((entry for entry in run.inbox if entry.request_id == request_id), None)
        if before is not None:
            return before.number
        if not run.is_open:
            if kind == CANCEL:
                return 0
            raise _closed(run)
        inline, blob = (b"", content) if isinstance(content, BlobRef) else (content, None)
        number = len(run.inbox) + 1
        run.inbox.append(
            Entry(number=number, kind=kind, name=name, payload=inline, request_id=request_id, payload_blob=blob)
        )
        if run.state != "RUNNING":
            self._wake(run, kind, name)
        return number

    def _wake(self, run: StoredRun, kind: str, name: str) -> None:
        park = run.park or ParkFacts(waiting_on="")
        nothing = park.nothing_to_compensate
        if kind == CANCEL and ends_at_once(run.state, run.waiting_on, run.epoch, nothing_to_compensate=nothing):
            asked = self._own(kinds.CANCEL_REQUESTED, payloads.pack({"number": len(run.inbox)}))
            ended = self._own(kinds.RUN_CANCELLED, payloads.pack(CANCELLED.to_facts()))
            self._write(run, [asked, ended])
            run.taken_in, run.is_cancel_requested = len(run.inbox), True
            self._end_drive(run, ended)
        elif kind == PAUSE and run.waiting_on != "paused":
            before = park if run.state == "WAITING" else None
            self._park(run, ParkFacts(waiting_on="paused", nothing_to_compensate=nothing, before=before))
        elif kind == RESUME and run.waiting_on == "paused":
            self._resume(run, park)
        elif run.state == "WAITING" and wakes(kind, name, run.waiting_on, park.signals):
            run.state, run.cause = "QUEUED", "approval" if kind == DECISION else "signal"

    def _resume(self, run: StoredRun, park: ParkFacts) -> None:
        """Back to what it waited on, unless something of that may have come meanwhile."""
        before = park.before
        since = run.inbox[run.taken_in :]
        if (
            before is None
            or before.waiting_on not in PROGRAM_WAITS - {"operator"}
            or any(wakes(entry.kind, entry.name, before.waiting_on, before.signals) for entry in since)
        ):
            run.state, run.cause = "QUEUED", "signal" if run.epoch else "start"
            return
        self._park(run, before)

    def _park(self, run: StoredRun, facts: ParkFacts) -> None:
        """The journal's own park of a run that nobody drives."""
        self._write(run, [self._own(kinds.RUN_PARKED, facts.pack())])
        run.state, run.park, run.error = "WAITING", facts, facts.error

    def repeat(self, run_id: str, event: NewEvent) -> None:
        """Whoever sent the entry that an event took in sends it once more."""
        entry = self.run(run_id).inbox[int(payloads.unpack(event.payload).facts["number"]) - 1]
        number = self.send(run_id, entry.kind, entry.name, entry.payload, request_id=entry.request_id)
        assert number == entry.number, "a request is taken in once"

    def decide(self, run_id: str, approval_id: str, decision: str, by: str, comment: bytes | None = None) -> bool:
        """Decides an approval: the first wins (SPEC G5). True where the same was decided before.

        Args:
            run_id: The run.
            approval_id: Which approval of it.
            decision: approved, denied or expired.
            by: Who; empty for an expiry.
            comment: JSON.

        Raises:
            LanternError: APPROVAL_NOT_FOUND; APPROVAL_DECIDED, it was decided otherwise before.
        """
        approval = self._approval(run_id, approval_id)
        if approval.state != "PENDING":
            if approval.state == decision.upper():
                return True
            message = f"approval {approval_id} is {approval.state}" + (f" by {approval.by}" if approval.by else "")
            raise LanternError(reasons.APPROVAL_DECIDED, message, run_id=run_id, state=approval.state)
        approval.state, approval.by = decision.upper(), by
        facts = DecisionFacts(approval_id=approval_id, step_id=approval.step_id, decision=decision, by=by)
        self.send(run_id, DECISION, approval_id, facts.pack(comment), request_id=f"decision:{approval_id}")
        return False

    def _approval(self, run_id: str, approval_id: str) -> Approval:
        approval = self.run(run_id).approvals.get(approval_id)
        if approval is None:
            message = f"the run never asked for an approval {approval_id!r}"
            raise LanternError(reasons.APPROVAL_NOT_FOUND, message, run_id=run_id, approval_id=approval_id)
        return approval

    # Time.

    def pass_time(self) -> None:
        """Lets approvals expire, and queues the runs whose time has come."""
        now_us = self._now_us()
        for run in self.runs.values():
            for approval_id, approval in run.approvals.items():
                expires_us = approval.facts.expires_us
                if run.is_open and approval.state == "PENDING" and expires_us is not None and expires_us <= now_us:
                    self.decide(run.run_id, approval_id, "expired", "")
            if run.due_us is not None and run.due_us <= now_us:
                run.state, run.cause = "QUEUED", "timer"

    def next_due_us(self) -> int | None:
        """When something happens by itself next: a run is due, an approval expires."""
        dues = [run.due_us for run in self.runs.values() if run.due_us is not None]
        for run in self.runs.values():
            pending = [each.facts.expires_us for each in run.approvals.values() if each.state == "PENDING"]
            dues.extend(due_us for due_us in pending if due_us is not None)
        return min(dues, default=None)

    def queued(self) -> list[StoredRun]:
        """The runs that need a driver, in the order of their creation."""
        return [run for run in self.runs.values() if run.state == "QUEUED"]

    # Deliveries and large contents.

    def claim(self, run_id: str, epoch: int, key: str, nonce: bytes) -> tuple[bool, Claim]:
        """Whether this claim is the one that won, and what is known of the delivery; LEASE_LOST."""
        self._held(run_id, epoch)
        found = self.claims.setdefault(key, Claim(run_id=run_id, nonce=nonce))
        return found.nonce == nonce, found

    def settle(self, key: str, *, delivered: bool, result: Content) -> None:
        """Records how a delivery ended, and wakes a run that waits for that; SIDE_EFFECT_NOT_FOUND, _SETTLED."""
        found = self.claims.get(key)
        if found is None:
            raise LanternError(reasons.SIDE_EFFECT_NOT_FOUND, f"no delivery was claimed under {key}", key=key)
        state = "delivered" if delivered else "refused"
        if found.state != "claimed":
            if (found.state, found.result) != (state, result):
                raise LanternError(reasons.SIDE_EFFECT_SETTLED, f"it is {found.state}", key=key, state=found.state)
            return
        found.state, found.result = state, result
        run = self.runs[found.run_id]
        if run.waiting_on == "operator":
            run.state, run.cause = "QUEUED", "signal"

    def put_blob(self, content: bytes) -> BlobRef:
        """Keeps content that is too large for an event."""
        blob = BlobRef.of(content)
        self.blobs[blob] = content
        return blob

    def content(self, content: Content) -> bytes:
        """The bytes of what stands in an event, or of the blob that it names; BLOB_NOT_FOUND."""
        if not isinstance(content, BlobRef):
            return content
        if content not in self.blobs:
            raise LanternError(reasons.BLOB_NOT_FOUND, f"blob {content} is not kept here")
        return self.blobs[content]

    # How it works.

    def _held(self, run_id: str, epoch: int) -> StoredRun:
        run = self.run(run_id)
        if run.epoch != epoch or not run.is_held:
            raise _lost(run_id, f"epoch {epoch} is over")
        return run

    def _own(self, kind: str, payload: bytes) -> NewEvent:
        self._salts += 1
        return NewEvent(kind=kind, payload=payload, salt=sha256(b"%d" % self._salts).digest()[: chain.SALT_BYTES])

    def _write(self, run: StoredRun, events: Sequence[NewEvent]) -> None:
        for event in events:
            before = run.events[-1] if run.events else None
            seq, time_us = len(run.events) + 1, max(self._now_us(), before.time_us if before else 0)
            digest = event.digest(run_id=run.run_id, seq=seq, epoch=run.epoch)
            if event.kind in _STEP_ENDS:
                run.ended_steps.add(event.step_id)
            run.events.append(
                Event(
                    seq=seq,
                    kind=event.kind,
                    step_id=event.step_id,
                    attempt=event.attempt,
                    epoch=run.epoch,
                    time_us=time_us,
                    payload=event.payload,
                    salt=event.salt,
                    digest=digest,
                    hash=chain.link(before.hash if before else chain.genesis(run.run_id), digest, time_us),
                )
            )


def _content(event: Event | NewEvent) -> tuple[Any, ...]:
    return event.kind, event.step_id, event.attempt, event.payload, event.salt


def _lost(run_id: str, why: str) -> LanternError:
    return LanternError(reasons.LEASE_LOST, why, run_id=run_id)


def _closed(run: StoredRun) -> LanternError:
    return LanternError(reasons.RUN_CLOSED, f"the run has ended: {run.state}", run_id=run.run_id, state=run.state)
