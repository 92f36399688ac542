"""A run of a program over the course and a journal in memory, in a storm: everything comes in any order, and crashes.

The journal judges as the real one does (inbox ahead, no success after a cancel), wakes a parked run by the journal's
own rule, and ends what a parent's end ends. A crash leaves any prefix of what was to be appended.
"""

import random
from collections.abc import Sequence
from typing import Any

from lantern_journal.domain import run_state
from lantern_kernel import kinds, payloads
from lantern_kernel.course.course import Course
from lantern_kernel.event import AppliedEvent, Event, NewEvent
from lantern_kernel.inbox import InboxEntry
from lantern_kernel.payloads import DecisionFacts, ParkFacts
from lantern_kernel.replay import Replay
from lantern_kernel.retry import Failure
from lantern_kernel.step_ends import Completed
from lantern_kernel.work import StepWork
from storms.adversary import SIGNALS, Adversary

RUN_ID = "0190b5f0-0000-7000-8000-000000000001"
START_US = 1_700_000_000_000_000
TURNS_MAX = 4_000


class Crash(Exception):
    """The driver is gone."""


class Chances:
    """The course's chance: a seeded one."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance

    def random_bytes(self, count: int) -> bytes:
        """See Chance."""
        return self._chance.randbytes(count)

    def random01(self) -> float:
        """See Chance."""
        return self._chance.random()


class Storm:
    """One run from its start to its end, over any number of drivers."""

    def __init__(self, seed: int, *, size: int = 14, crashes: int = 6, resets: int = 0) -> None:
        self.seed, self.size, self.crashes, self._resets_left = seed, size, crashes, resets
        self.chance = random.Random(seed)
        self.journal: list[Event] = []
        self.inbox: list[InboxEntry] = []
        self.now_us = START_US
        self.epoch = 0
        self.turns = 0
        self.is_calm = False
        self.last: Adversary = self._program()
        self.dispatched: list[tuple[str, int, int]] = []  # step, attempt, how many events stood then
        self.children: dict[str, str] = {}  # by step: open, ended or cancelled
        self.last_asked: dict[str, int] = {}  # by the child's step: how many events stood then
        self.resets: list[tuple[int, int]] = []
        self._decided: set[int] = set()  # by the place of the request
        self._sent = 0
        self._write([NewEvent(kind=kinds.RUN_STARTED, salt=bytes(16), payload=payloads.pack({}, b"7"))])

    def run(self) -> None:
        """Until the terminal event."""
        while self.journal[-1].kind not in kinds.TERMINAL:
            self.epoch += 1
            self._write([NewEvent(kind=kinds.LEASE_GRANTED, salt=bytes(16))])
            try:
                park = _Driver(self).drive()
            except Crash:
                continue
            if park is not None:
                self._sleep(park)
                if self._resets_left and self.chance.random() < 0.4:
                    self._reset()

    def replayed(self) -> Adversary:
        """A fresh program driven along the journal as it stands, and no further."""
        replay, program = Replay(run_id=RUN_ID, workflow_id="", resets=self.resets), self._program()
        program.begin(replay)
        for event in self.journal:
            replay.apply(applied(event))
        while True:
            for command in program.advance():
                replay.issue(command)
            outcome = replay.next_outcome()
            if outcome is None:
                break
            program.resolve(outcome)
        replay.finish_history()
        return program

    def events(self, *of: str) -> list[Event]:
        """The events of these kinds that no reset passes over."""
        return [
            event
            for event in self.journal
            if event.kind in of
            and (event.kind in kinds.FROM_INBOX or not any(to < event.seq <= at for to, at in self.resets))
        ]

    def append(self, events: Sequence[NewEvent], consumed: int) -> bool:
        """As the journal: True where it went in, False where the inbox is ahead of a last event."""
        if events[-1].kind in kinds.ENDS_DRIVE and consumed < len(self.inbox):
            return False
        has_cancel = any(e.kind == kinds.CANCEL_REQUESTED for e in (*self.journal, *events))
        assert not (has_cancel and events[-1].kind == kinds.RUN_SUCCEEDED), "refused: CANCEL_REQUESTED"
        self._write(events)
        return True

    def survive(self, events: Sequence[NewEvent]) -> None:
        """What of an append stands although its writer died."""
        self._write(events)

    def create_child(self, step_id: str) -> None:
        """Idempotent, as CreateRun is."""
        if self.children.setdefault(step_id, "open") == "open":
            self.last_asked[step_id] = len(self.journal)

    def cancel_child(self, step_id: str) -> None:
        """Asks a child to end; it may have ended already, or never have been."""
        if self.children.get(step_id) == "open":
            self.children[step_id] = "cancelled"
            self._child_ended(step_id, "CANCELLED")

    def weather(self) -> None:
        """Something that others do, perhaps."""
        choice = self.chance.randrange(12 if not self.is_calm else 5)
        pending = self._pending()
        match choice:
            case 0 | 1:
                self.send("signal", self.chance.choice(SIGNALS), b"%d" % self._sent)
            case 2 if pending:
                self._decide(self.chance.choice(pending))
            case 3:
                self._end_a_child()
            case 5:
                self.send("update", "change", b"%d" % self._sent)
            case 6 if self.chance.random() < 0.1:
                self.send("cancel", "", b"")
            case 7 if self.chance.random() < 0.3:
                self.send("pause", "", b"")
                self.send("resume", "", b"")
            case 8 if pending:
                self._delegate(self.chance.choice(pending))
            case _:
                self.now_us += self.chance.choice([0, 1_000, 300_000, 9_000_000])

    def send(self, kind: str, name: str, payload: bytes) -> None:
        """An entry for the inbox."""
        self._sent += 1
        self.inbox.append(InboxEntry(number=len(self.inbox) + 1, kind=kind, name=name, payload=payload))

    def _program(self) -> Adversary:
        return Adversary(self.seed, self.size)

    def _write(self, events: Sequence[NewEvent]) -> None:
        for event in events:
            self.journal.append(
                Event(
                    seq=len(self.journal) + 1,
                    kind=event.kind,
                    step_id=event.step_id,
                    attempt=event.attempt,
                    epoch=self.epoch,
                    time_us=self.now_us,
                    payload=event.payload,
                    salt=event.salt,
                    digest=b"",
                    hash=b"",
                )
            )

    def _reset(self) -> None:
        """As an operator does: the run goes on from an earlier place."""
        self._resets_left -= 1
        reset_to = self.chance.randint(1, len(self.journal))
        payload = payloads.pack({"toSeq": reset_to})
        self._write([NewEvent(kind=kinds.HISTORY_RESET, salt=bytes(16), payload=payload)])
        self.resets.append((reset_to, len(self.journal)))

    def _pending(self) -> list[Event]:
        return [event for event in self.events(kinds.APPROVAL_REQUESTED) if event.seq not in self._decided]

    def _decide(self, request: Event) -> None:
        step_id = request.step_id
        self._decided.add(request.seq)
        decision = self.chance.choice(["approved", "denied", "expired"])
        facts = DecisionFacts(approval_id=step_id, step_id=step_id, decision=decision, by="ann")
        self.send("decision", step_id, facts.pack(b"%d" % self._sent))

    def _delegate(self, request: Event) -> None:
        step_id = request.step_id
        facts = DecisionFacts(approval_id=step_id, step_id=step_id, decision="delegated", by="ann", assignee="bob")
        self.send("delegation", step_id, facts.pack(None))

    def _end_a_child(self) -> None:
        running = [step_id for step_id, state in self.children.items() if state == "open"]
        if running:
            step_id = self.chance.choice(running)
            self.children[step_id] = "ended"
            self._child_ended(step_id, self.chance.choice(["SUCCEEDED", "FAILED"]))

    def _child_ended(self, step_id: str, state: str) -> None:
        facts: dict[str, Any] = {"runId": f"child-of-{step_id}", "state": state}
        if state != "SUCCEEDED":
            facts["error"] = {"code": "CHILD", "message": state}
        data = b"%d" % self._sent if state == "SUCCEEDED" else None
        self.send("child", step_id, payloads.pack(facts, data))

    def _sleep(self, park: ParkFacts) -> None:
        """Until something wakes the run, by the journal's rule."""
        seen = len(self.inbox)
        while True:
            self.turns += 1
            assert self.turns < TURNS_MAX, f"nothing wakes it: {park}"
            if park.due_us is not None and (self.is_calm or self.chance.random() < 0.3):
                self.now_us = max(self.now_us, park.due_us)
                return
            self.is_calm = self.is_calm or self.turns > TURNS_MAX // 4
            self.weather()
            for entry in self.inbox[seen:]:
                if wakes(entry, park):
                    return
            seen = len(self.inbox)


def wakes(entry: InboxEntry, park: ParkFacts) -> bool:
    if entry.kind == "update":
        return park.waiting_on in run_state.PROGRAM_WAITS
    return run_state.wakes(entry.kind, entry.name, park.waiting_on, park.signals)


class _Driver:
    """One drive, over the course, with its program."""

    def __init__(self, storm: Storm) -> None:
        self.storm = storm
        self.chance = storm.chance
        self.running: list[StepWork] = []
        resets: list[tuple[int, int]] = []
        while True:
            self.program, self.course = self._load(resets)
            if self.course.reset_found is None:
                break
            resets.append(self.course.reset_found)
        assert resets == storm.resets
        storm.last = self.program

    def _load(self, resets: Sequence[tuple[int, int]]) -> tuple[Adversary, Course]:
        storm, program = self.storm, Adversary(self.storm.seed, self.storm.size)
        course = Course(
            run_id=RUN_ID,
            workflow_id="",
            epoch=storm.epoch,
            program=program,
            sources=Chances(storm.chance),
            now_us=lambda: storm.now_us,
            resets=resets,
        )
        course.load(storm.journal)
        return program, course

    def drive(self) -> ParkFacts | None:
        """Until the run ends (None) or parks; raises Crash."""
        storm, course = self.storm, self.course
        while True:
            storm.turns += 1
            assert storm.turns < TURNS_MAX, f"it does not come to an end: {list(self.program.open)}"
            storm.is_calm = storm.is_calm or storm.turns > TURNS_MAX // 4
            if self.chance.random() < 0.5:
                storm.weather()
            if self.chance.random() < 0.5:
                course.take_inbox(storm.inbox)
            self._end_steps()
            course.pass_time()
            course.advance()
            if not self.running:
                course.park_if_idle()
            if course.events or course.ending:
                ended = self._commit()
                if ended is not None:
                    return None if ended.kind in kinds.TERMINAL else ParkFacts.unpack(ended.payload)
            if not (course.events or course.ending):
                self._dispatch()

    def _end_steps(self) -> None:
        count = self.chance.choice([0, 1, 1, 2, len(self.running)])
        for _ in range(min(count, len(self.running))):
            work = self.running.pop(self.chance.randrange(len(self.running)))
            step_id, attempt = work.command.step_id, work.attempt
            if self.chance.random() < 0.7:
                self.course.step_ended(work, Completed(output=b'"%b#%d"' % (step_id.encode(), attempt)))
            else:
                outcome = "unknown" if self.chance.random() < 0.5 else "not_executed"
                failure = Failure(code="LUCK", message="bad luck", error_class="tool", outcome=outcome)
                self.course.step_ended(work, failure)

    def _commit(self) -> NewEvent | None:
        """The event that ended the drive, if one did."""
        storm, course = self.storm, self.course
        events = [*course.events, *course.ending]
        if storm.crashes and not storm.is_calm and self.chance.random() < 0.25:
            storm.crashes -= 1
            kept = self.chance.randint(0, len(course.events))
            if course.ending and self.chance.random() < 0.3:
                if not storm.append(events, course.consumed_inbox_number):
                    kept = 0
            elif kept:
                storm.survive(course.events[:kept])
            check_replay(
                storm,
                self.program,
                is_whole=kept == len(course.events) and not course.ending,
                is_paused=course.is_paused,
            )
            raise Crash
        if not storm.append(events, course.consumed_inbox_number):
            course.reconsider()
            course.take_inbox(storm.inbox)
            return None
        ending = course.ending[-1] if course.ending else None
        course.committed(len(course.events))
        check_replay(storm, self.program, is_whole=True, is_paused=course.is_paused)
        if ending is not None:
            assert not course.child_stops or ending.kind in kinds.TERMINAL, "parked with children still to be cancelled"
        return ending

    def _dispatch(self) -> None:
        storm, course = self.storm, self.course
        stopped, course.stops = course.stops, set()
        self.running = [work for work in self.running if work.command.step_id not in stopped]
        for work in course.take_starts():
            storm.dispatched.append((work.command.step_id, work.attempt, len(storm.journal)))
            self.running.append(work)
        for child in course.take_children():
            storm.create_child(child.command.step_id)
        child_stops, course.child_stops = course.child_stops, []
        for child in child_stops:
            storm.cancel_child(child.command.step_id)
        since = storm.resets[-1][1] if storm.resets else 0
        open_children = {
            step_id
            for step_id, state in storm.children.items()
            if state == "open" and storm.last_asked[step_id] > since
        }
        unwanted = open_children & self.program.withdrawn - self.program.abandoned
        assert not unwanted, f"{unwanted} go on although nobody wants them"
        if storm.crashes and not storm.is_calm and self.chance.random() < 0.05:
            storm.crashes -= 1
            raise Crash


def check_replay(storm: Storm, before: Adversary, *, is_whole: bool, is_paused: bool) -> None:
    """Fresh code along the journal asks for and is told what the code before was: all of it, or the beginning of it.

    While a run is paused its code does not run on: then the code before may be the one that is behind.
    """
    again = storm.replayed()
    if is_paused:
        told, asked = min(len(again.told), len(before.told)), min(len(again.asked), len(before.asked))
        assert again.told[:told] == before.told[:told]
        assert again.asked[:asked] == before.asked[:asked]
        return
    assert again.told == before.told[: len(again.told)]
    assert again.asked == before.asked[: len(again.asked)]
    if is_whole:
        assert (len(again.told), len(again.asked)) == (len(before.told), len(before.asked))


def applied(event: Event) -> AppliedEvent:
    """An event as the replay core takes it."""
    return AppliedEvent(
        seq=event.seq,
        kind=event.kind,
        step_id=event.step_id,
        attempt=event.attempt,
        epoch=event.epoch,
        time_us=event.time_us,
        payload=event.payload,
    )
