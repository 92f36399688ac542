"""Group commit (SPEC J8): one transaction at a time, of what has arrived; no refusal fails another run's append."""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Sequence

from lantern_journal.application.announcements import WOKEN, Hub
from lantern_journal.domain import appends
from lantern_journal.domain.appends import Append, GroupPlan, Head, Verdict, judge_place
from lantern_journal.domain.run_state import RunChange, change_of
from lantern_journal.ports import Clock, Collision, Disconnected, GroupRefused, Store
from lantern_kernel import kinds, reasons
from lantern_kernel.errors import LanternError

log = logging.getLogger(__name__)

GROUP_ROWS_MAX = 512
GROUP_BYTES_MAX = 4 * 1024 * 1024
HEADS_MAX = 50_000
"""Runs whose heads are kept; the one that was not used for longest goes first."""

GROUP_TRIES = 2
"""Of a group that collides, before its appends go one by one."""

OUTCOME_TRIES = 12
OUTCOME_BACKOFF_S_FIRST = 0.02
OUTCOME_BACKOFF_S_MAX = 1.0
OUTCOME_S_MAX = 10.0
"""Waits while the database is away: 20 ms, doubled up to a second; some 8 s in all, less where the tries take long."""

WOKEN_LATE = frozenset({"code_fix", "operator"})
"""What a run may wait on that can come before its park."""

COLLISION_TRIES = 8
"""Of one append alone."""

_DATABASE_AWAY = frozenset({reasons.UNKNOWN_OUTCOME, reasons.UNAVAILABLE})

Done = Callable[[Append, "int | LanternError"], None]
"""Told the place of the append's last event, or why it did not go in."""


class HeadCache:
    """The heads of runs that were appended to lately. Worth nothing once the database connection was lost."""

    def __init__(self) -> None:
        self._heads: dict[str, Head] = {}

    def get(self, run_id: str) -> Head | None:
        """The head, if it is kept."""
        head = self._heads.pop(run_id, None)
        if head is not None:
            self._heads[run_id] = head
        return head

    def put(self, heads: dict[str, Head]) -> None:
        """Keeps heads; forgets those that were not used for longest where there are too many."""
        for run_id, head in heads.items():
            self._heads.pop(run_id, None)
            self._heads[run_id] = head
        while len(self._heads) > HEADS_MAX:
            del self._heads[next(iter(self._heads))]

    def drop(self, run_ids: Sequence[str]) -> None:
        """Forgets some."""
        for run_id in run_ids:
            self._heads.pop(run_id, None)

    def clear(self) -> None:
        """Forgets all."""
        self._heads.clear()


class GroupCommitter:
    """Takes appends from all sessions and writes them in groups."""

    def __init__(self, store: Store, clock: Clock, hub: Hub) -> None:
        self._store, self._clock, self._hub = store, clock, hub
        self._heads = HeadCache()
        self._generation = store.generation
        self._waiting: deque[tuple[Append, Done]] = deque()
        self._task: asyncio.Task[None] | None = None

    def submit(self, append: Append, done: Done) -> None:
        """Takes an append; `done` is called once, in this loop."""
        self._waiting.append((append, done))
        if self._task is None:
            self._task = asyncio.create_task(self._drain())

    async def append(self, append: Append) -> int:
        """Takes an append and waits: the place of its last event, or its refusal raised."""
        answer: asyncio.Future[int | LanternError] = asyncio.get_running_loop().create_future()

        def done(_: Append, outcome: int | LanternError) -> None:
            if not answer.done():
                answer.set_result(outcome)

        self.submit(append, done)
        outcome = await answer
        if isinstance(outcome, LanternError):
            raise outcome
        return outcome

    def keep(self, run_id: str, head: Head) -> None:
        """Keeps the head of a run that was just created or opened here."""
        self._heads.put({run_id: head})

    def known_head(self, run_id: str) -> Head | None:
        """The head of a run that was appended to here lately, as this process knows it."""
        self._forget_where_lost()
        return self._heads.get(run_id)

    def forget(self, run_id: str) -> None:
        """Drops the head of a run that something else than an append has just moved."""
        self._heads.drop([run_id])

    async def finish(self) -> None:
        """Waits until all that was taken is answered."""
        while self._task is not None:
            await asyncio.wait([self._task])

    async def _drain(self) -> None:
        try:
            while self._waiting:
                # Whatever this turn of the loop still brings goes along, and the answers to the group before go out.
                await asyncio.sleep(0)
                group = self._cut()
                try:
                    await self._commit(group)
                except Exception:
                    # Nothing may end this loop: every worker would hang.
                    log.exception("group failed", extra={"action": "group_failed", "appends": len(group)})
                    self._answer_rest(group)
        finally:
            self._task = None
            if self._waiting:
                self._task = asyncio.create_task(self._drain())

    def _cut(self) -> "list[_Item]":
        group: list[_Item] = []
        rows = size = 0
        while self._waiting:
            append, done = self._waiting[0]
            rows, size = rows + len(append.events), size + append.size
            if group and (rows > GROUP_ROWS_MAX or size > GROUP_BYTES_MAX):
                break
            self._waiting.popleft()
            group.append(_Item(append, done))
        return group

    def _answer_rest(self, group: "list[_Item]") -> None:
        error = LanternError(reasons.INTERNAL, "the append could not be judged; the service's log says more")
        for item in group:
            self._heads.drop([item.append.run_id])
            item.answer(error)

    async def _commit(self, group: "list[_Item]") -> None:
        """Answers every item of a group."""
        todo = group
        is_fresh = False
        collisions = unknown = 0
        backoff_s = OUTCOME_BACKOFF_S_FIRST
        began_s = self._clock.monotonic_s()
        while todo:
            try:
                await self._round(todo, is_fresh=is_fresh)
            except Collision:
                collisions += 1
            except GroupRefused:
                pass  # the refused ones are answered; the others go again
            except Disconnected as error:
                unknown += 1
                self._heads.clear()
                if unknown >= OUTCOME_TRIES or self._clock.monotonic_s() - began_s >= OUTCOME_S_MAX:
                    self._give_up(todo, error)
                    return
                await asyncio.sleep(backoff_s)
                backoff_s = min(backoff_s * 2, OUTCOME_BACKOFF_S_MAX)
            except Exception as error:
                if isinstance(error, LanternError) and error.reason in _DATABASE_AWAY:
                    # What the database says of itself (it is full, say) holds for every append of the group.
                    self._refuse(todo, error)
                    return
                # A row that the database does not take: only its own run may suffer.
                if len(todo) == 1:
                    log.exception("append failed", extra={"action": "append_failed", "run_id": todo[0].append.run_id})
                    self._answer_rest(todo)
                    return
                log.warning("group goes one by one", extra={"action": "group_split", "cause": type(error).__name__})
                await self._one_by_one(todo)
                return
            todo = [item for item in todo if not item.is_answered]
            is_fresh = True
            if collisions >= (GROUP_TRIES if len(todo) > 1 else COLLISION_TRIES):
                await self._collided(todo)
                return

    def _refuse(self, todo: "list[_Item]", error: LanternError) -> None:
        log.warning(
            "group refused",
            extra={"action": "group_refused", "appends": len(todo), "reason": error.reason, "hint": error.message},
        )
        for item in todo:
            self._heads.drop([item.append.run_id])
            item.answer(error)

    async def _collided(self, todo: "list[_Item]") -> None:
        if len(todo) > 1:
            await self._one_by_one(todo)
            return
        for item in todo:
            item.answer(
                LanternError(reasons.UNAVAILABLE, "the run is written to by others; append again", retry_after_s=0.05)
            )

    async def _one_by_one(self, todo: "list[_Item]") -> None:
        for item in todo:
            if not item.is_answered:
                self._heads.drop([item.append.run_id])
                await self._commit([item])

    def _give_up(self, todo: "list[_Item]", error: Disconnected) -> None:
        log.error("outcome unknown", extra={"action": "outcome_unknown", "appends": len(todo), "cause": str(error)})
        for item in todo:
            item.answer(
                LanternError(
                    reasons.UNKNOWN_OUTCOME, "the database does not answer; send the same append again", retry_after_s=1
                )
            )

    async def _round(self, todo: "list[_Item]", *, is_fresh: bool) -> None:
        """Judges, writes, answers what can be answered. `is_fresh`: heads are read anew, and odd ones settled."""
        heads = await self._load_heads(todo, is_fresh=is_fresh)
        plan = appends.plan_group([item.append for item in todo], heads, self._clock.now_us())
        for index in plan.stale:
            item = todo[index]
            item.answer(appends.error_of(Verdict.STALE, item.append, heads[item.append.run_id]))
        if plan.rows:
            await self._write(todo, plan)
        self._heads.put(plan.heads)
        for index, last_seq in plan.fits:
            todo[index].answer(last_seq)
        self._hub.committed(plan.rows)
        self._announce_parks(plan.changes)
        if is_fresh:
            await self._settle_odd(todo, plan, heads)

    async def _write(self, todo: "list[_Item]", plan: GroupPlan) -> None:
        try:
            aftermath = await self._store.insert_group(plan.rows, plan.changes, blobs=plan.blobs, tops=plan.tops)
            if aftermath:
                self._heads.drop(aftermath.moved)
                self._hub.tell(aftermath)
        except GroupRefused as refused:
            errors = {(plan.changes[i].run_id, plan.changes[i].last_seq): e for i, e in refused.errors.items()}
            errors |= {(plan.blobs[i].run_id, plan.blobs[i].last_seq): e for i, e in refused.blobs.items()}
            for index, last_seq in plan.fits:
                error = errors.get((todo[index].append.run_id, last_seq))
                if isinstance(error, LanternError):
                    todo[index].answer(error)
            raise

    def _forget_where_lost(self) -> None:
        if self._generation != self._store.generation:
            self._generation = self._store.generation
            self._heads.clear()

    async def _load_heads(self, todo: "list[_Item]", *, is_fresh: bool) -> dict[str, Head]:
        self._forget_where_lost()
        wanted = {item.append.run_id for item in todo}
        if is_fresh:
            self._heads.drop(list(wanted))
        kept = {run_id: head for run_id in wanted if (head := self._heads.get(run_id)) is not None}
        missing = sorted(wanted - kept.keys())
        if missing:
            loaded = await self._store.heads(missing)
            self._heads.put(loaded)
            kept.update(loaded)
        return kept

    async def _settle_odd(self, todo: "list[_Item]", plan: GroupPlan, heads: dict[str, Head]) -> None:
        """Answers the first odd append of each run by what the database holds; those behind it are judged again."""
        settled: set[str] = set()
        for index, verdict in plan.odd:
            item = todo[index]
            run_id = item.append.run_id
            if run_id in settled:
                continue
            settled.add(run_id)
            head = plan.heads.get(run_id) or heads.get(run_id)
            if head is None:
                item.answer(appends.not_found(run_id))
            elif run_id in plan.heads:
                continue  # an append of this group moved the head: judged again on the new one
            elif verdict is not Verdict.LOOK:
                item.answer(appends.error_of(verdict, item.append, head))
            else:
                await self._look(item, head)

    async def _look(self, item: "_Item", head: Head) -> None:
        append = item.append
        try:
            stored, _ = await self._store.list_events(
                append.run_id, append.first_seq - 1, len(append.events), append.size + 1024 * 1024
            )
        except LanternError as error:
            if error.reason not in _DATABASE_AWAY:
                raise
            # What this look was to settle is as unknown as before.
            raise Disconnected(error.message) from error
        if appends.is_repeat(append, stored):
            item.answer(append.first_seq + len(append.events) - 1)
            self._announce_repeat(append)
            return
        verdict = judge_place(append, head)
        item.answer(appends.error_of(Verdict.CONFLICT if verdict is Verdict.FITS else verdict, append, head))

    def _announce_repeat(self, append: Append) -> None:
        """The answer to the write was lost, and with it what follows a commit; told twice does no harm."""
        self._hub.moved(append.run_id)
        last_us = self._clock.now_us()
        change = change_of(append.run_id, append.first_seq, append.events, append.consumed_inbox_number, last_us)
        if change is not None:
            self._announce_parks([change])
            if change.waiting_on in WOKEN_LATE or change.ends_with in kinds.TERMINAL:
                # What it parked on may have been there already, and the run be queued; or its end woke others.
                self._hub.announce(WOKEN)

    def _announce_parks(self, changes: Sequence[RunChange]) -> None:
        for change in changes:
            if change.due_us is not None:
                self._hub.due_at(change.due_us)
            if any(request.expires_us is not None for request in change.approvals):
                self._hub.expiry_changed.set()


class _Item:
    """An append and who waits for it; answered exactly once."""

    __slots__ = ("_done", "append", "is_answered")

    def __init__(self, append: Append, done: Done) -> None:
        self.append, self._done, self.is_answered = append, done, False

    def answer(self, outcome: int | LanternError) -> None:
        if self.is_answered:
            return
        self.is_answered = True
        try:
            self._done(self.append, outcome)
        except Exception:
            log.exception("an answer could not be delivered", extra={"action": "answer_failed"})
