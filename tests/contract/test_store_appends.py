"""Goal: groups of appends go in whole, in order, judged by the run's own history, and come back byte for byte.

Method: the GroupCommitter over both databases, with drivers that know only what a worker knows (seq and digest).
"""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from journal_kit import (
    LIMITS,
    attach,
    driven,
    entry,
    event,
    grant,
    head,
    new_run,
    park,
    start,
    succeeded,
    write,
)

from lantern_journal.adapters.clock import CarriedClock
from lantern_journal.application.announcements import Hub
from lantern_journal.application.committer import GroupCommitter
from lantern_journal.domain.appends import Append, Head, Row
from lantern_journal.domain.family import Aftermath
from lantern_journal.domain.run_state import RunChange, RunState
from lantern_journal.ports import Disconnected, Store
from lantern_kernel import payloads, reasons
from lantern_kernel.errors import LanternError
from lantern_kernel.event import NewEvent, find_chain_fault


def committer_of(store: Store) -> GroupCommitter:
    return GroupCommitter(store, CarriedClock(), Hub())


def append_on(run_id: str, top: Head, *events: NewEvent, consumed: int = 0) -> Append:
    return Append(
        run_id=run_id,
        epoch=top.epoch,
        first_seq=top.seq + 1,
        previous_digest=top.digest,
        events=events,
        consumed_inbox_number=consumed,
    )


async def reason_of(committer: GroupCommitter, append: Append) -> str:
    try:
        await committer.append(append)
    except LanternError as error:
        return error.reason
    return "went in"


PAYLOADS = [
    b"",
    b"\x00",
    b'{"data":"\\u0000"}',
    b'{"data":9007199254740993}',
    "😀🏳️‍🌈 ﷽".encode(),
    b"\xff\xfe not even text",
    bytes(range(256)),
    b"x" * 262_144,
]


async def test_payloads_come_back_byte_for_byte(store: Store) -> None:
    started, _ = await driven(store)
    run_id = started.run.run_id
    top = await head(store, run_id)
    events = [event("marker_recorded", payload, f"m[{i}]") for i, payload in enumerate(PAYLOADS)]
    assert await committer_of(store).append(append_on(run_id, top, *events)) == top.seq + len(events)
    stored, more = await store.list_events(run_id, top.seq, 100, 1 << 20)
    assert not more
    assert [e.payload for e in stored] == PAYLOADS
    assert [(e.kind, e.step_id, e.attempt, e.salt) for e in stored] == [
        (e.kind, e.step_id, e.attempt, e.salt) for e in events
    ]
    everything, _ = await store.list_events(run_id, 0, 100, 1 << 20)
    assert find_chain_fault(run_id, everything) is None


async def test_pages_are_cut_by_rows_and_bytes_and_hold_at_least_one(store: Store) -> None:
    started, _ = await driven(store)
    run_id = started.run.run_id
    await write(store, run_id, *(event("marker_recorded", b"x" * 1000, f"m{i}") for i in range(10)))
    page, more = await store.list_events(run_id, 0, 3, 1 << 20)
    assert ([e.seq for e in page], more) == ([1, 2, 3], True)
    page, more = await store.list_events(run_id, 2, 100, 3 * 1400)
    assert ([e.seq for e in page], more) == ([3, 4, 5], True)
    page, more = await store.list_events(run_id, 11, 100, 1)
    assert ([e.seq for e in page], more) == ([12], False)
    assert await store.list_events(run_id, 12, 100, 1) == ([], False)


async def test_the_order_of_judgement(store: Store) -> None:
    """A stale epoch, then a repeat, then a closed run, then the place: each append fails for its first fault."""
    started, target = await driven(store)
    run_id = started.run.run_id
    committer = committer_of(store)
    first = append_on(run_id, await head(store, run_id), event())
    assert await committer.append(first) == 3
    assert await committer.append(first) == 3, "a repeat is told the stored place"
    assert await reason_of(committer, replace(first, events=(event(),))) == reasons.APPEND_CONFLICT, "another salt"
    top = await head(store, run_id)
    assert await reason_of(committer, replace(append_on(run_id, top, event()), first_seq=9)) == reasons.APPEND_CONFLICT
    wrong = replace(append_on(run_id, top, event()), previous_digest=b"?" * 32)
    assert await reason_of(committer, wrong) == reasons.APPEND_CONFLICT
    assert await reason_of(committer, replace(append_on(run_id, top, event()), epoch=2)) == reasons.INVALID_FIELD
    await store.release_lease(run_id, 1, "w1")
    await store.acquire_lease(grant(run_id, target), LIMITS)
    assert await reason_of(committer, append_on(run_id, top, event())) == reasons.LEASE_LOST
    assert await reason_of(committer, first) == reasons.LEASE_LOST, "a stale epoch is judged before a repeat"
    last = append_on(run_id, await head(store, run_id), succeeded())
    assert await committer.append(last) == 5
    assert await committer.append(last) == 5, "a repeat of the final append"
    assert await reason_of(committer, append_on(run_id, await head(store, run_id), event())) == reasons.RUN_CLOSED
    assert await reason_of(committer, replace(last, epoch=1)) == reasons.LEASE_LOST
    missing = append_on(new_run().run_id, await head(store, run_id), event())
    assert await reason_of(committer, missing) == reasons.RUN_NOT_FOUND
    events, _ = await store.list_events(run_id, 0, 100, 1 << 20)
    assert find_chain_fault(run_id, events) is None


async def test_after_its_park_an_epoch_is_over(store: Store) -> None:
    started, _ = await driven(store)
    run_id = started.run.run_id
    after = await park(store, run_id, "signal")
    assert await reason_of(committer_of(store), append_on(run_id, after, event())) == reasons.LEASE_LOST


async def test_a_park_that_has_not_consumed_the_inbox_is_refused_alone(store: Store) -> None:
    started, target = await driven(store)
    other = await start(store, "r2", target=target)
    committer = committer_of(store)
    await store.send(entry(started.run.run_id), LIMITS)
    tops = await store.heads([started.run.run_id, other.run.run_id])
    final = [append_on(run.run.run_id, tops[run.run.run_id], succeeded()) for run in (started, other)]
    assert await asyncio.gather(*(reason_of(committer, one) for one in final)) == [reasons.INBOX_AHEAD, "went in"]
    assert await reason_of(committer, replace(final[0], consumed_inbox_number=7)) == reasons.INVALID_FIELD
    assert await reason_of(committer, replace(final[0], consumed_inbox_number=1)) == "went in"
    assert (await store.get_run(started.run.run_id)).state is RunState.SUCCEEDED


async def test_a_pipeline_of_appends_goes_in_as_one_group(store: Store) -> None:
    started, _ = await driven(store)
    run_id = started.run.run_id
    committer = committer_of(store)
    top = await head(store, run_id)
    appends: list[Append] = []
    for number in range(50):
        made = event("marker_recorded", b"%d" % number, f"m{number}")
        appends.append(append_on(run_id, top, made))
        seq = top.seq + 1
        top = top._replace(seq=seq, digest=made.digest(run_id=run_id, seq=seq, epoch=1))
    assert await asyncio.gather(*map(committer.append, appends)) == list(range(3, 53))


async def test_two_journals_over_one_database_tell_one_story(store: Store) -> None:
    """Two committers with their own cached heads, as two processes have; two drivers of which one is stale."""
    started, target = await driven(store)
    run_id = started.run.run_id
    one, two = committer_of(store), committer_of(store)
    old = await head(store, run_id)
    assert await one.append(append_on(run_id, old, event())) == 3
    await store.release_lease(run_id, 1, "w1")
    await store.acquire_lease(grant(run_id, target), LIMITS)
    new = await head(store, run_id)
    stale = append_on(run_id, old._replace(seq=3, digest=(await store.list_events(run_id, 2, 1, 99))[0][0].digest))
    answers = await asyncio.gather(
        reason_of(one, replace(stale, events=(event(),))), reason_of(two, append_on(run_id, new, event()))
    )
    assert answers == [reasons.LEASE_LOST, "went in"]


async def test_bystanders_do_not_suffer_from_a_collision(store: Store) -> None:
    target = await attach(store)
    runs = [(await start(store, f"r{i}", target=target)).run.run_id for i in range(20)]
    committer, other = committer_of(store), committer_of(store)
    tops = await store.heads(runs)
    for run_id in runs:
        await committer.append(append_on(run_id, tops[run_id], event()))
    tops = await store.heads(runs)
    await other.append(append_on(runs[7], tops[runs[7]], event()))
    answers = await asyncio.gather(*(reason_of(committer, append_on(r, tops[r], event())) for r in runs))
    assert [i for i, answer in enumerate(answers) if answer != "went in"] == [7]
    assert answers[7] == reasons.APPEND_CONFLICT


class Faulty:
    """A store whose group writes fail as told: before or after the write itself."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.lose_answers = 0
        self.poison = ""

    def __getattr__(self, name: str) -> object:
        return getattr(self._store, name)

    async def insert_group(self, rows: Sequence[Row], changes: Sequence[RunChange], **more: Any) -> Aftermath:
        if any(row.step_id == self.poison for row in rows if self.poison):
            raise RuntimeError("the database does not take this row")
        woken = await self._store.insert_group(rows, changes, **more)
        if self.lose_answers:
            self.lose_answers -= 1
            raise Disconnected("the connection broke after the commit")
        return woken


async def test_a_lost_commit_answer_is_asked_for_by_content(store: Store) -> None:
    started, _ = await driven(store)
    run_id = started.run.run_id
    faulty = Faulty(store)
    faulty.lose_answers = 1
    committer = committer_of(faulty)  # pyright: ignore[reportArgumentType]
    top = await head(store, run_id)
    assert await committer.append(append_on(run_id, top, event(), event())) == 4
    assert (await head(store, run_id)).seq == 4


async def test_a_poison_row_isolates_its_own_run(store: Store) -> None:
    target = await attach(store)
    runs = [(await start(store, f"r{i}", target=target)).run.run_id for i in range(5)]
    faulty = Faulty(store)
    faulty.poison = "poison"
    committer = committer_of(faulty)  # pyright: ignore[reportArgumentType]
    tops = await store.heads(runs)
    answers = await asyncio.gather(
        *(
            reason_of(committer, append_on(r, tops[r], event(step_id="poison" if i == 2 else "fine")))
            for i, r in enumerate(runs)
        )
    )
    assert answers == ["went in", "went in", reasons.INTERNAL, "went in", "went in"]
    assert await reason_of(committer, append_on(runs[2], tops[runs[2]], event())) == "went in", "the loop lives on"


async def test_a_success_behind_its_cancel_is_refused_in_the_same_group_too(store: Store) -> None:
    started, _ = await driven(store)
    run_id = started.run.run_id
    await store.send(entry(run_id, kind="cancel", payload=b"null"), LIMITS)
    top, committer = await head(store, run_id), committer_of(store)
    cancel = event("cancel_requested", payloads.pack({"number": 1}), "", 0)
    after = moved_by_one(top, cancel.digest(run_id=run_id, seq=top.seq + 1, epoch=top.epoch))
    answers = await asyncio.gather(
        reason_of(committer, append_on(run_id, top, cancel)),
        reason_of(committer, append_on(run_id, after, succeeded(), consumed=1)),
    )
    assert answers == ["went in", reasons.CANCEL_REQUESTED]
    assert (await store.get_run(run_id)).state is RunState.RUNNING


def moved_by_one(top: Head, digest: bytes) -> Head:
    """The head that an append of one event leaves behind, as far as its writer knows it."""
    return top._replace(seq=top.seq + 1, digest=digest)
