"""Goal: a journal that checks digests in the database notices that it lost commits, although its heads are cached.

Method: the last event of a run is taken out of PostgreSQL behind the back of a committer that has its head cached, as a
failover to a lagging replica does, and the worker appends on.
"""

from collections.abc import AsyncIterator

import pytest
import sqlalchemy as sa
from journal_kit import driven, event, head, succeeded
from test_store_appends import append_on, committer_of, reason_of

from lantern_journal.adapters.engines import postgres_sync_engine
from lantern_journal.adapters.postgres import PostgresStore
from lantern_journal.adapters.schema import metadata
from lantern_journal.domain.appends import Head
from lantern_kernel import reasons
from lantern_kernel.event import NewEvent


@pytest.fixture
def engine(postgres_url: str) -> sa.Engine:
    """Past the journal."""
    return postgres_sync_engine(postgres_url)


@pytest.fixture
async def checking(postgres_url: str, engine: sa.Engine) -> AsyncIterator[PostgresStore]:
    """A store over an empty database that checks digests."""
    store = await PostgresStore.open(postgres_url, check_digests=True)
    with engine.begin() as connection:
        connection.execute(sa.text("TRUNCATE " + ", ".join(metadata.tables)))
    yield store
    await store.close()


def moved(run_id: str, top: Head, last: NewEvent) -> Head:
    """The head as the worker knows it after its append."""
    seq = top.seq + 1
    return top._replace(seq=seq, digest=last.digest(run_id=run_id, seq=seq, epoch=top.epoch))


@pytest.mark.parametrize("ending", [False, True], ids=["one statement", "a transaction"])
async def test_what_is_put_on_top_of_a_lost_event_is_refused(
    checking: PostgresStore, engine: sa.Engine, ending: bool
) -> None:
    started, _ = await driven(checking)
    run_id = started.run.run_id
    committer = committer_of(checking)
    top = await head(checking, run_id)
    lost = event(step_id="a")
    assert await committer.append(append_on(run_id, top, lost)) == 3
    with engine.begin() as connection:
        connection.execute(sa.text("DELETE FROM journal_events WHERE run_id = :r AND seq = 3"), {"r": run_id})
    after = append_on(run_id, moved(run_id, top, lost), succeeded() if ending else event(step_id="b"))
    assert await reason_of(committer, after) == reasons.APPEND_CONFLICT
    assert (await head(checking, run_id)).seq == 2, "no gap was made"
    with engine.begin() as connection:
        fed = connection.execute(sa.text("SELECT count(*) FROM journal_feed")).scalar_one()
    assert fed == 2, "and the feed tells of the start and of the lost event only"
    assert await reason_of(committer, append_on(run_id, top, event(step_id="c"))) == "went in", (
        "where the worker looks again"
    )


async def test_groups_of_many_runs_go_in_as_ever(checking: PostgresStore) -> None:
    started, _ = await driven(checking)
    run_id = started.run.run_id
    committer = committer_of(checking)
    top = await head(checking, run_id)
    for number in range(3):
        made = event(step_id=f"s{number}")
        assert await reason_of(committer, append_on(run_id, top, made)) == "went in"
        top = moved(run_id, top, made)
    assert await reason_of(committer, append_on(run_id, top, succeeded())) == "went in"
