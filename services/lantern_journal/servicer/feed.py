"""JournalFeedService: see its proto for what each RPC promises."""

from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Any
from weakref import WeakKeyDictionary

from lantern.api.journal.v1 import feed_service_pb2 as pb
from lantern.api.journal.v1 import feed_service_pb2_grpc
from lantern_journal import validate, wire
from lantern_journal.application.feed import Feed
from lantern_journal.domain import feed_cursor
from lantern_journal.domain.feed import FeedFilter, FeedPage
from lantern_journal.servicer.streams import OpenStreams


class FeedServicer(feed_service_pb2_grpc.JournalFeedServiceServicer):
    """For those who follow all runs."""

    def __init__(self, feed: Feed, streams: OpenStreams) -> None:
        self._feed, self._streams = feed, streams
        # A page that goes to many followers is made a message once.
        self._messages: WeakKeyDictionary[FeedPage, pb.FollowAllResponse] = WeakKeyDictionary()

    async def FollowAll(self, request: pb.FollowAllRequest, context: Any) -> AsyncIterator[pb.FollowAllResponse]:
        """Sends the events of all runs as they are committed."""
        validate.follow_all(request)
        wanted = FeedFilter(tenant_id=request.tenant_id, terminal_only=request.terminal_only)
        with self._streams.registered():
            if request.cursor:
                cursor = feed_cursor.from_token(request.cursor)
            else:
                at_beginning = request.start != pb.FollowAllRequest.START_NOW
                cursor = await self._feed.begin(at_beginning=at_beginning)
                # From here on the caller misses nothing, whatever becomes of this call.
                yield pb.FollowAllResponse(cursor=feed_cursor.to_token(cursor))
            async with aclosing(self._feed.follow(cursor, wanted)) as pages:
                async for page in pages:
                    yield self._message(page)

    def _message(self, page: FeedPage) -> pb.FollowAllResponse:
        message = self._messages.get(page)
        if message is None:
            message = self._messages[page] = wire.feed_page(page)
        return message

    async def GetFeedConsumer(self, request: pb.GetFeedConsumerRequest, context: Any) -> pb.GetFeedConsumerResponse:
        """Returns how far a named consumer has come."""
        validate.consumer_name(request.name)
        return pb.GetFeedConsumerResponse(cursor=await self._feed.consumer(request.name))

    async def CommitFeedConsumer(
        self, request: pb.CommitFeedConsumerRequest, context: Any
    ) -> pb.CommitFeedConsumerResponse:
        """Moves the cursor of a named consumer by compare-and-set."""
        validate.consumer_name(request.name)
        feed_cursor.from_token(request.cursor)
        if "\0" in request.expected_cursor:
            raise feed_cursor.invalid("it is none that this service has given")
        await self._feed.commit(request.name, request.expected_cursor, request.cursor)
        return pb.CommitFeedConsumerResponse()
