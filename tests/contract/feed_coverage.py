"""What every operation of a store must leave behind: each event in exactly one entry of the feed over all runs."""

from collections import Counter

import sqlalchemy as sa

from lantern_journal.adapters.schema import journal_events, journal_feed, journal_marks, runs
from lantern_journal.adapters.sql_feed import FLOOR_ID
from lantern_journal.adapters.sql_store import SqlStore
from lantern_journal.domain import feed
from lantern_kernel import kinds


def _events(connection: sa.Connection) -> dict[tuple[str, int], bool]:
    query = sa.select(journal_events.c.run_id, journal_events.c.seq, journal_events.c.kind)
    return {(run_id, seq): kind in kinds.TERMINAL for run_id, seq, kind in connection.execute(query)}


def _fed(connection: sa.Connection) -> list[tuple[str, int, bool]]:
    found: list[tuple[str, int, bool]] = []
    for packed in connection.execute(sa.select(journal_feed.c.entries).order_by(journal_feed.c.id)).scalars():
        for entry in feed.unpack(packed):
            last = entry.first_seq + entry.events - 1
            found += [
                (entry.run_id, seq, entry.is_terminal and seq == last) for seq in range(entry.first_seq, last + 1)
            ]
    return found


def _archived(connection: sa.Connection) -> set[str]:
    """Runs whose events are in archive files; the feed may name them still."""
    return set(connection.execute(sa.select(runs.c.run_id).where(runs.c.archived)).scalars())


def _has_dropped(connection: sa.Connection) -> bool:
    query = sa.select(journal_marks.c.value).where(journal_marks.c.name == FLOOR_ID)
    return bool(connection.execute(query).scalar())


async def check_feed(store: SqlStore) -> None:
    """Fails where an event is missing in the feed, is there twice, or is there without being in the journal."""
    events = await store._read(_events)  # pyright: ignore[reportPrivateUsage]
    archived = await store._read(_archived)  # pyright: ignore[reportPrivateUsage]
    fed = [entry for entry in await store._read(_fed) if entry[0] not in archived]  # pyright: ignore[reportPrivateUsage]
    counts = Counter((run_id, seq) for run_id, seq, _ in fed)
    assert {place for place, count in counts.items() if count != 1} == set(), "twice in the feed"
    in_feed = {(run_id, seq): is_terminal for run_id, seq, is_terminal in fed}
    has_dropped = await store._read(_has_dropped)  # pyright: ignore[reportPrivateUsage]
    assert in_feed.items() <= events.items() if has_dropped else in_feed == events
    latest = {run_id: seq - 1 for run_id, seq, _ in reversed(fed)} if has_dropped else {}
    for run_id, seq, _ in fed:
        assert seq == latest.get(run_id, 0) + 1, "in the order of their ids, the entries of a run are dense"
        latest[run_id] = seq
