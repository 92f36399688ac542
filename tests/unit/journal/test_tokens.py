"""Goal: a token that no database can take is refused at the edge, not answered with INTERNAL.

Method: PostgreSQL's texts hold no NUL; tokens made by hand do.
"""

from typing import Any, cast

import pytest

from lantern.api.journal.v1 import feed_service_pb2 as pb
from lantern_journal.domain import feed_cursor
from lantern_journal.domain.feed_cursor import Cursor, Snapshot
from lantern_journal.servicer.feed import FeedServicer
from lantern_journal.servicer.streams import OpenStreams, number_of, page_token, position_of
from lantern_kernel import reasons
from lantern_kernel.errors import InvalidField, LanternError


def test_a_position_comes_back() -> None:
    assert position_of(page_token(7, "run", "ask[0]"), 3) == ["7", "run", "ask[0]"]
    assert position_of("", 3) is None
    assert number_of(page_token(12), 0) == 12


@pytest.mark.parametrize("token", [page_token(0, "\0", "x"), page_token(0, "x"), "x", "é"])
def test_a_position_that_was_never_given_is_refused(token: str) -> None:
    with pytest.raises(InvalidField):
        position_of(token, 3)


async def test_an_expected_cursor_that_was_never_given_is_refused() -> None:
    # The refusal comes before anything is asked of the feed.
    servicer = FeedServicer(cast("Any", None), OpenStreams())
    cursor = feed_cursor.to_token(Cursor(database_id=1, base=Snapshot(end=1)))
    request = pb.CommitFeedConsumerRequest(name="receipts", expected_cursor="\0", cursor=cursor)
    with pytest.raises(LanternError) as refused:
        await servicer.CommitFeedConsumer(request, None)
    assert refused.value.reason == reasons.FEED_CURSOR_INVALID
