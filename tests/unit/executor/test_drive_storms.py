"""Goal: the executor's drive keeps the laws of tests/storms in every durability mode, however often it dies.

Method: the adversary is driven by the real drive over the in-memory journal, on simulated time. Meanwhile signals,
decisions, updates, cancels, pauses and ends of children come in, announced or not; drives die at appends, before or
after the commit, or at some time; answers of the journal get lost. `LANTERN_TEST_DRIVE_STORMS` says how many seeds,
`LANTERN_TEST_SEED` which is the first.
"""

import asyncio
import os
import random
from collections import Counter
from collections.abc import Sequence

import pytest
from executor_fakes import EPOCH_US, FakeJournal, JournalWorld, Row, SimulatedSources, request, simulate

from lantern_executor.application.drive import Drive
from lantern_executor.domain.run import Offer, Run
from lantern_executor.domain.step import StepCall, StepContext
from lantern_executor.domain.tail import Append
from lantern_kernel import kinds, payloads
from lantern_kernel.event import Event, find_chain_fault
from lantern_kernel.inbox import InboxEntry
from lantern_kernel.payloads import DecisionFacts, ParkFacts
from lantern_kernel.replay import Replay
from lantern_kernel.retry import Failure
from lantern_kernel.step_ends import Completed
from storms import laws
from storms.adversary import SIGNALS, Adversary
from storms.stormy_journal import applied, wakes

STORMS = int(os.environ.get("LANTERN_TEST_DRIVE_STORMS", "240"))
FIRST = int(os.environ.get("LANTERN_TEST_SEED", "1"))
MODES = ("sync", "async", "exit")
BATCHES = 4
DRIVES_MAX = 300
CALM_AFTER_S = 200.0


class _Driven(Adversary):
    """The adversary with steps that take their time."""

    def __init__(self, storm: "DriveStorm") -> None:
        super().__init__(storm.seed, storm.size)
        self._storm = storm

    def step_call(self, step_id: str) -> StepCall:
        """See Program of the executor."""
        storm = self._storm

        async def run(context: StepContext) -> Completed | Failure:
            if step_id not in self.free:
                storm.note(context)
            await asyncio.sleep(storm.chance.choice([0, 0.01, 0.2, 3.0]))
            if storm.chance.random() < 0.7:
                return Completed(output=b'"%b#%d"' % (step_id.encode(), context.attempt))
            outcome = "unknown" if storm.chance.random() < 0.5 else "not_executed"
            return Failure(code="LUCK", message="bad luck", error_class="tool", outcome=outcome)

        return StepCall(run=run)


class DriveStorm:
    """One run from its start to its end, over any number of drives; ProgramsPort of its own, and a Story."""

    def __init__(self, seed: int, mode: str) -> None:
        self.seed, self.size = seed, 4 + seed % 16
        self.chance = random.Random(f"{seed} {mode}")
        self.world = JournalWorld()
        self.row: Row = self.world.create(request("adversary", payload=b"7"), durability=mode)
        self.deaths = seed % 7
        self.drives = 0
        self.resets: list[tuple[int, int]] = []
        self.last = _Driven(self)
        self.dispatched: list[tuple[str, int, int]] = []
        self._decided: set[str] = set()
        self._drive: Drive | None = None

    # Story.

    @property
    def journal(self) -> Sequence[Event]:
        """See Story."""
        return self.row.events

    @property
    def children(self) -> dict[str, str]:
        """See Story."""
        names = {"SUCCEEDED": "ended", "FAILED": "ended", "CANCELLED": "cancelled"}
        return {
            parent.step_id: names.get(self.world.rows[run_id].run.state, "open")
            for run_id, parent in self.world.children.items()
        }

    def events(self, *of: str) -> list[Event]:
        """See Story."""
        return [event for event in self.row.events if event.kind in of]

    # ProgramsPort.

    def offers(self) -> Sequence[Offer]:
        """See ProgramsPort."""
        return [Offer(name="adversary", digest="d1", program_kind="code")]

    async def prepare(self, run: Run) -> None:
        """See ProgramsPort."""

    def start(self, run: Run) -> _Driven:
        """See ProgramsPort."""
        del run
        self.last = _Driven(self)
        return self.last

    # The storm.

    def note(self, context: StepContext) -> None:
        """An attempt that touches the outside begins: all before it is committed, its own step_started included."""
        place = (kinds.STEP_STARTED, context.step_id, context.attempt, context.epoch)
        found = [event for event in self.row.events if (event.kind, event.step_id, event.attempt, event.epoch) == place]
        assert len(found) == 1, f"dispatched with {len(found)} of {place}"
        self.dispatched.append((context.step_id, context.attempt, len(self.row.events)))

    async def run(self) -> None:
        """To the terminal event."""
        raging = asyncio.create_task(self._rage())
        try:
            while self.row.events[-1].kind not in kinds.TERMINAL:
                self.drives += 1
                assert self.drives < DRIVES_MAX, f"it does not come to an end: {list(self.last.open)}"
                if self.row.run.state == "WAITING":
                    await self._asleep(ParkFacts.unpack(self.row.events[-1].payload))
                await self._drive_once()
        finally:
            raging.cancel()
            await asyncio.wait([raging])
        if not raging.cancelled():
            raging.result()

    @property
    def is_calm(self) -> bool:
        """Whether nobody does any harm any more."""
        return asyncio.get_running_loop().time() > CALM_AFTER_S

    async def _drive_once(self) -> None:
        journal, dead = FakeJournal(self.world, f"w{self.drives}"), asyncio.Event()
        if self.deaths and not self.is_calm:
            self.deaths -= 1
            self._doom(journal, dead)
        elif self.chance.random() < 0.3:
            journal.before = self._lose_answer
        epoch = self.world.grant(self.row.run.run_id, journal.worker_id)
        self._drive = Drive(
            journal=journal, programs=self, sources=SimulatedSources(), run_id=self.row.run.run_id, epoch=epoch
        )
        driving, dying = asyncio.create_task(self._drive.run()), asyncio.create_task(dead.wait())
        await asyncio.wait([driving, dying], return_when=asyncio.FIRST_COMPLETED)
        self._drive = None
        is_dead = dead.is_set()
        driving.cancel()
        dying.cancel()
        await asyncio.wait([driving, dying])
        assert not journal.released, "handed back: the drive failed"
        if not is_dead:
            self._check_replay()

    async def _lose_answer(self, append: Append) -> None:
        """It is committed, nobody hears of it, and it is sent again."""
        if append.events[-1].kind not in kinds.ENDS_DRIVE:
            self.world.append(append)
        await asyncio.sleep(0.01)

    def _doom(self, journal: FakeJournal, dead: asyncio.Event) -> None:
        how, when = self.chance.choice(["before", "after", "time"]), self.chance.randint(1, 4)
        if how == "time":
            asyncio.get_running_loop().call_later(self.chance.uniform(0, 5), dead.set)
            return

        async def die(append: Append) -> None:
            del append
            await asyncio.sleep(0.001)
            if len(journal.appends) == when:
                dead.set()
                await asyncio.Event().wait()

        if how == "before":
            journal.before = die
        else:
            journal.after = die

    def _check_replay(self) -> None:
        """Fresh code along the journal asks for and is told what the code before was."""
        replay, program = Replay(run_id=self.row.run.run_id, workflow_id=""), _Driven(self)
        program.begin(replay)
        for event in self.row.events:
            replay.apply(applied(event))
        while True:
            for command in program.advance():
                replay.issue(command)
            outcome = replay.next_outcome()
            if outcome is None:
                break
            program.resolve(outcome)
        replay.finish_history()
        told, asked = len(self.last.told), len(self.last.asked)
        assert program.told[:told] == self.last.told
        assert program.asked[:asked] == self.last.asked
        if self.row.events[-1].kind in kinds.TERMINAL:
            assert (len(program.told), len(program.asked)) == (told, asked)

    async def _asleep(self, park: ParkFacts) -> None:
        """Until something wakes the run, by the journal's rule."""
        unread = _taken_in(self.row.events)
        while not any(wakes(entry, park) for entry in self.row.inbox[unread:]):
            assert asyncio.get_running_loop().time() < 100 * CALM_AFTER_S, f"nothing wakes it: {park}"
            now_us = EPOCH_US + round(asyncio.get_running_loop().time() * 1e6)
            if park.due_us is not None and park.due_us <= now_us:
                return
            await asyncio.sleep(0.5)

    async def _rage(self) -> None:
        """What others do, as long as the run lasts."""
        while True:
            await asyncio.sleep(self.chance.choice([0, 0.01, 0.1, 1.0, 4.0]))
            if self.row.events[-1].kind in kinds.TERMINAL:
                return
            self._weather()
            if self._drive is not None and self.chance.random() < 0.8:
                self._drive.inbox_arrived()

    def _weather(self) -> None:
        pending = [e.step_id for e in self.events(kinds.APPROVAL_REQUESTED) if e.step_id not in self._decided]
        open_children = [
            run_id for run_id in self.world.children if self.world.rows[run_id].run.state in ("QUEUED", "RUNNING")
        ]
        for run_id in {run_id for run_id, _ in self.world.cancels} & set(open_children):
            self.world.end_child(run_id, "CANCELLED")
            open_children.remove(run_id)
        match self.chance.randrange(5 if self.is_calm else 12):
            case 0 | 1:
                self._send("signal", self.chance.choice(SIGNALS), b"%d" % len(self.row.inbox))
            case 2 if pending:
                step_id = self.chance.choice(pending)
                self._decided.add(step_id)
                decision = self.chance.choice(["approved", "denied", "expired"])
                facts = DecisionFacts(approval_id=step_id, step_id=step_id, decision=decision, by="ann")
                self._send("decision", step_id, facts.pack(b"1"))
            case 3 if open_children:
                state = self.chance.choice(["SUCCEEDED", "FAILED"])
                self.world.end_child(self.chance.choice(open_children), state, b"1" if state == "SUCCEEDED" else None)
            case 5:
                self._send("update", "change", b"%d" % len(self.row.inbox))
            case 6 if self.chance.random() < 0.05:
                self._send("cancel", "", b"")
            case 7 if self.chance.random() < 0.2:
                self._send("pause", "", b"")
                self._send("resume", "", b"")
            case _:
                return

    def _send(self, kind: str, name: str, payload: bytes) -> None:
        self.row.inbox.append(InboxEntry(number=len(self.row.inbox) + 1, kind=kind, name=name, payload=payload))


def _taken_in(events: Sequence[Event]) -> int:
    """The last entry that became an event."""
    numbers = [payloads.unpack(event.payload).facts["number"] for event in events if event.kind in kinds.FROM_INBOX]
    return max(numbers, default=0)


def weathered(seed: int, mode: str) -> DriveStorm:
    """A storm that has passed."""

    async def main() -> DriveStorm:
        storm = DriveStorm(seed, mode)
        await storm.run()
        return storm

    return simulate(main())


@pytest.mark.parametrize("batch", range(BATCHES))
@pytest.mark.parametrize("mode", MODES)
def test_a_drive_keeps_the_laws(mode: str, batch: int) -> None:
    for seed in range(FIRST + batch, FIRST + STORMS, BATCHES):
        try:
            storm = weathered(seed, mode)
            laws.check(storm)
            assert find_chain_fault(storm.row.run.run_id, storm.row.events) is None
            check_cancelled_children(storm)
        except Exception as error:
            raise AssertionError(f"seed {seed} {mode}: {error!r}") from error


def check_cancelled_children(storm: DriveStorm) -> None:
    """Whoever was asked to end was not wanted any more, and was not abandoned; each was made under its one request."""
    cancelled = {storm.world.children[run_id].step_id for run_id, _ in storm.world.cancels}
    assert not cancelled & storm.last.abandoned
    made = Counter(parent.step_id for parent in storm.world.children.values())
    assert set(made.values()) <= {1}, "a child was made twice"


def test_the_storms_are_stormy() -> None:
    seen: Counter[str] = Counter()
    for seed in range(1, 60):
        storm = weathered(seed, MODES[seed % 3])
        seen.update(event.kind for event in storm.row.events)
        seen["drives"] += storm.drives
        seen["children"] += len(storm.children)
        seen["cancelled children"] += len(storm.world.cancels)
    wanted = {kinds.RUN_PARKED, kinds.STEP_RETRYING, kinds.UPDATE_COMPLETED, kinds.CHILD_COMPLETED}
    missing = [what for what in (*wanted, "cancelled children", kinds.RUN_CANCELLED) if not seen[what]]
    assert not missing, seen
    assert seen["drives"] > 200
