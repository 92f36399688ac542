"""A TCP proxy in front of PostgreSQL that cuts a connection at a chosen commit, before, at or after its execution.

It knows just enough of the protocol (postgresql.org/docs: Message Formats) to see which statements a transaction sends
and when it is committed: by COMMIT, or by itself where the statement stands alone.
"""

import asyncio
import contextlib
import struct
from collections.abc import AsyncGenerator
from dataclasses import dataclass, field
from enum import Enum

SSL_REQUEST, GSS_REQUEST, CANCEL_REQUEST = 80877103, 80877104, 80877102


class Moment(Enum):
    """When the connection is cut."""

    # The commit never reaches the server.
    BEFORE = "before"
    # It is sent, and nobody waits for what becomes of it.
    DURING = "during"
    # The server has answered, and the answer is thrown away.
    AFTER = "after"


@dataclass(kw_only=True, slots=True)
class _Cut:
    """A cut that is to come."""

    # In the text of a statement of the transaction.
    statement: str
    # When.
    moment: Moment


@dataclass(eq=False, kw_only=True, slots=True)
class _Link:
    """One connection through the proxy."""

    client: asyncio.StreamWriter
    server: asyncio.StreamWriter
    # Texts of prepared statements by name.
    prepared: dict[bytes, str] = field(default_factory=dict[bytes, str])
    # Of the present transaction.
    statements: list[str] = field(default_factory=list[str])
    in_transaction: bool = False
    # The answers from here on are thrown away, up to the server's next readiness.
    swallow: bool = False

    def close(self) -> None:
        for writer in (self.client, self.server):
            writer.close()


class CuttingProxy:
    """Listens on a port of its own; use `open`."""

    def __init__(self, port: int) -> None:
        self._target = port
        self._armed: list[_Cut] = []
        self._links: set[_Link] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self.port = 0
        self.cuts = 0

    @classmethod
    @contextlib.asynccontextmanager
    async def open(cls, port: int) -> AsyncGenerator["CuttingProxy"]:
        """A proxy to a port of the loopback interface."""
        proxy = cls(port)
        server = await asyncio.start_server(proxy._begin, "127.0.0.1", 0)
        proxy.port = server.sockets[0].getsockname()[1]
        try:
            yield proxy
        finally:
            server.close()
            for link in list(proxy._links):
                link.close()
            if proxy._tasks:
                await asyncio.wait(proxy._tasks, timeout=5)

    def arm(self, statement: str, moment: Moment, times: int = 1) -> None:
        """Cuts the next commits of transactions with such a statement."""
        self._armed += [_Cut(statement=statement, moment=moment) for _ in range(times)]

    @property
    def armed_count(self) -> int:
        """Cuts that have not come yet."""
        return len(self._armed)

    def _begin(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.create_task(self._serve(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        to_server: asyncio.StreamWriter | None = None
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            startup = await _read_startup(reader, writer)
            from_server, to_server = await asyncio.open_connection("127.0.0.1", self._target)
            to_server.write(startup)
            link = _Link(client=writer, server=to_server)
            self._links.add(link)
            try:
                async with asyncio.TaskGroup() as pumps:
                    pumps.create_task(self._forward(reader, link))
                    pumps.create_task(self._back(from_server, link))
            except* (OSError, asyncio.IncompleteReadError):
                pass
            finally:
                self._links.discard(link)
                link.close()
        writer.close()

    async def _forward(self, reader: asyncio.StreamReader, link: _Link) -> None:
        """The client's messages, up to a cut."""
        cut: _Cut | None = None
        while True:
            kind, body, raw = await _read_message(reader)
            cut = cut or self._look(kind, body, link)
            if cut is not None and cut.moment is Moment.BEFORE:
                self.cuts += 1
                raise ConnectionAbortedError
            if cut is not None and kind in (b"Q", b"S"):
                # The whole request is there: the server acts on it.
                link.swallow = True
                link.server.write(raw)
                await link.server.drain()
                self.cuts += 1
                if cut.moment is Moment.DURING:
                    raise ConnectionAbortedError
                cut = None
                continue
            link.server.write(raw)
            await link.server.drain()

    async def _back(self, reader: asyncio.StreamReader, link: _Link) -> None:
        """The server's messages, up to a cut."""
        while True:
            kind, _, raw = await _read_message(reader)
            if link.swallow:
                if kind == b"Z":
                    raise ConnectionAbortedError
                continue
            link.client.write(raw)
            await link.client.drain()

    def _look(self, kind: bytes, body: bytes, link: _Link) -> _Cut | None:
        """Follows the client's transaction; the cut where this message commits one that is to be cut."""
        if kind == b"P":
            name, text, _ = body.split(b"\0", 2)
            link.prepared[name] = text.decode(errors="replace")
            return None
        if kind == b"Q":
            text = body.rstrip(b"\0").decode(errors="replace")
        elif kind == b"B":
            text = link.prepared.get(body.split(b"\0", 2)[1], "")
        else:
            return None
        match text.split(" ", 1)[0].rstrip(";").upper():
            case "BEGIN":
                link.in_transaction, link.statements = True, []
                return None
            case "COMMIT":
                link.in_transaction = False
                return self._due(link.statements)
            case "ROLLBACK":
                link.in_transaction = False
                return None
            case _ if link.in_transaction:
                link.statements.append(text)
                return None
            case _:
                return self._due([text])

    def _due(self, statements: list[str]) -> _Cut | None:
        for cut in self._armed:
            if any(cut.statement in text for text in statements):
                self._armed.remove(cut)
                return cut
        return None


async def _read_startup(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bytes:
    """The client's first message; encryption is declined."""
    while True:
        head = await reader.readexactly(8)
        length, code = struct.unpack("!II", head)
        if code not in (SSL_REQUEST, GSS_REQUEST):
            return head + await reader.readexactly(length - 8)
        writer.write(b"N")


async def _read_message(reader: asyncio.StreamReader) -> tuple[bytes, bytes, bytes]:
    """A message: its kind, its body, and all of it."""
    head = await reader.readexactly(5)
    body = await reader.readexactly(struct.unpack("!I", head[1:])[0] - 4)
    return head[:1], body, head + body
