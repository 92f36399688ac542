"""When what a drive has decided is committed: at once, beside the steps, or held (SPEC J7, durability).

`sync` commits before anything else begins. `async` commits in the background while steps that touch nothing outside
run. `exit` holds events until the run parks or ends, or until they fill an append. In all of them everything decided is
committed before something begins that others can see: a step that touches the outside, a child, an answer that somebody
waits for, the end of the drive.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import Literal

from lantern_executor.domain.tail import APPEND_BYTES_MAX, APPEND_EVENTS_MAX, Tail, cut, event_size_bytes
from lantern_executor.ports import JournalPort
from lantern_kernel import kinds, payloads, reasons
from lantern_kernel.course.course import Course
from lantern_kernel.errors import LanternError
from lantern_kernel.event import Event, NewEvent

Durability = Literal["sync", "async", "exit"]


def durability_of(first: Event) -> Durability:
    """The mode that a run was started with; what this version does not know is held to the strictest."""
    named = payloads.unpack(first.payload).facts.get("durability") if first.kind == kinds.RUN_STARTED else None
    return named if named in ("async", "exit") else "sync"


class Commits:
    """The appends of one drive: one at a time, in order.

    Args:
        journal: Where they go.
        course: What decides on events.
        tail: Where the history ends.
        tenant_id: Whose blobs the events name.
        mode: When to commit.
        wake: Called when a commit in the background has ended.
    """

    def __init__(
        self,
        journal: JournalPort,
        course: Course,
        tail: Tail,
        tenant_id: str,
        mode: Durability,
        wake: Callable[[], None],
    ) -> None:
        self._journal = journal
        self._course = course
        self._tail = tail
        self._tenant_id = tenant_id
        self._mode = mode
        self._wake = wake
        self._background: asyncio.Task[None] | None = None
        self._measured = 0  # of the course's events
        self._held_bytes = 0  # of those

    @property
    def may_wait(self) -> bool:
        """Whether nothing of what the course wants to begin needs its events committed first."""
        course = self._course
        return self._mode != "sync" and not (
            course.ending
            or course.is_awaited_outside
            or course.children
            or course.child_stops
            or not all(work.is_free for work in course.starts)
        )

    def begin(self) -> None:
        """Commits beside what runs, as far as the mode wants it by now.

        Raises:
            LanternError: The journal refused what was committed so before.
        """
        if self._background is not None:
            if not self._background.done():
                return
            self._background, ended = None, self._background
            ended.result()
        if self._course.events and (self._mode == "async" or self._is_full):
            self._background = asyncio.create_task(self._commit_events())
            self._background.add_done_callback(lambda _: self._wake())

    async def now(self) -> bool:
        """Commits all that is decided, and waits for it; True where that ended the drive.

        Raises:
            LanternError: The journal refused it.
        """
        await self._settled()
        course = self._course
        await self._upload()
        for events in cut(tuple(course.events), course.ending):
            try:
                await self._append(events)
            except LanternError as error:
                if error.reason != reasons.INBOX_AHEAD:
                    raise
                # Nothing of this append went in: take in what others said, and decide anew on top of it.
                entries = await self._journal.list_inbox(self._tail.run_id, course.consumed_inbox_number)
                if not entries:
                    raise
                course.reconsider()
                course.take_inbox(entries)
                return False
        return bool(course.ending)

    async def events(self) -> None:
        """Commits what is decided but for the end of the drive, and waits for it.

        Raises:
            LanternError: The journal refused it.
        """
        await self._settled()
        await self._commit_events()

    async def stop(self) -> None:
        """Gives up what is under way: whether it goes in is not known, as after a crash."""
        task, self._background = self._background, None
        if task is None:
            return
        task.cancel()
        await asyncio.wait([task])
        if not task.cancelled():
            task.exception()  # looked at, so that nobody complains of an error that was never retrieved

    async def _settled(self) -> None:
        task, self._background = self._background, None
        if task is not None:
            await task

    async def _commit_events(self) -> None:
        """What is decided by now; what is decided meanwhile goes with the next."""
        events = tuple(self._course.events)
        await self._upload()
        for part in cut(events):
            await self._append(part)

    async def _upload(self) -> None:
        for blob, content in list(self._course.uploads.items()):
            await self._journal.put_blob(self._tenant_id, content)
            self._course.uploads.pop(blob, None)

    async def _append(self, events: Sequence[NewEvent]) -> None:
        append = self._tail.append(events, self._course.consumed_inbox_number)
        await self._journal.append(append)
        self._tail.moved_by(append)
        self._course.committed(len(events))
        self._measured = self._held_bytes = 0

    @property
    def _is_full(self) -> bool:
        """Whether the events that are held fill an append."""
        events = self._course.events
        self._held_bytes += sum(map(event_size_bytes, events[self._measured :]))
        self._measured = len(events)
        return self._measured >= APPEND_EVENTS_MAX or self._held_bytes >= APPEND_BYTES_MAX
