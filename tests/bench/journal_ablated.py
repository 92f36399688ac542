"""A journal process of the bench's own, which leaves something out, to tell what that costs. It is no journal to use.

chain        no digests and no hashes are made, so the fence cannot compare the one that an append names
fence        every append fits: neither epoch, nor place, nor named digest is judged (the primary key stays)
sessions     nothing is noted of who was heard, and nothing tended
feed         no row in the feed over all runs
projections  no event changes its run's row
"""

import argparse
import asyncio
import sys
from collections.abc import Sequence
from typing import Any

from lantern_journal import __main__ as service
from lantern_journal.adapters import postgres, sql_events, sqlite
from lantern_journal.application import committer
from lantern_journal.application.sessions import Sessions
from lantern_journal.domain import appends
from lantern_journal.domain.appends import Append, Head, Row, Verdict
from lantern_kernel.event import NewEvent

NOTHING = bytes(32)


def _rows_without_hashes(
    run_id: str, head: Head, epoch: int, now_us: int, events: Sequence[NewEvent], rows: list[Row]
) -> Head:
    time_us = max(now_us, head.time_us)
    seq, kind = head.seq, head.kind
    for kind, salt, step_id, attempt, payload in events:
        seq += 1
        rows.append(Row(run_id, seq, kind, step_id, attempt, epoch, time_us, payload, salt, NOTHING, NOTHING))
    return Head(seq, NOTHING, NOTHING, epoch, time_us, kind)


def _judge_without_digest(append: Append, head: Head) -> Verdict:
    if append.epoch < head.epoch:
        return Verdict.STALE
    return Verdict.FITS if append.first_seq == head.seq + 1 else Verdict.CONFLICT


def _judge_nothing(_append: Append, _head: Head) -> Verdict:
    return Verdict.FITS


def _hear_nothing(_self: object, _session: object) -> None:
    return


async def _tend_nothing(_self: object) -> None:
    await asyncio.Event().wait()


def _change_nothing(*_of: object) -> None:
    return


def _columns_alone(rows: Sequence[Row]) -> list[object]:
    return sql_events.insert_parameters(rows)[2:]


def _no_feed_values(_rows: Sequence[Row]) -> tuple[int, bytes]:
    return 0, b""


_INSERT_ALONE = "INSERT" + sql_events.POSTGRES_INSERT.rpartition(" INSERT")[2]

PARTS: dict[str, list[tuple[Any, str, object]]] = {
    "chain": [(appends, "rows_of", _rows_without_hashes), (appends, "judge", _judge_without_digest)],
    "fence": [(appends, "judge", _judge_nothing)],
    "sessions": [(Sessions, "heard", _hear_nothing), (Sessions, "run", _tend_nothing)],
    "feed": [
        (postgres, "_INSERT", _INSERT_ALONE.encode()),
        (postgres, "insert_parameters", _columns_alone),
        (sqlite, "SQLITE_FEED", "SELECT ?, ?"),
        (sqlite, "feed_values", _no_feed_values),
    ],
    "projections": [(appends, "change_of", _change_nothing), (committer, "change_of", _change_nothing)],
}


def main() -> None:
    """Serves without one part; settings as the journal's."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--without", choices=sorted(PARTS), required=True)
    for target, name, replacement in PARTS[parser.parse_args().without]:
        assert hasattr(target, name), f"{target} has no {name} any more: mend the bench"
        setattr(target, name, replacement)
    sys.argv = sys.argv[:1]
    service.main()


if __name__ == "__main__":
    main()
