"""gRPC without sockets: channels and servers whose messages are late, and whose connections break.

The generated stubs and servicers are the real ones; what lies between them is simulated. A message on one connection is
never lost alone (TCP): the connection breaks, and each side learns of it in its own time, or a partition holds it up.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any

import grpc
from grpc.aio import AioRpcError, Metadata

from lantern_serving.channels import RPC_DEADLINE_S
from lantern_serving.interceptors import ErrorInterceptor
from simulation.loop import PROCESS, Process, SimulatedLoop

LATENCY_S_MIN, LATENCY_S_MAX = 0.0001, 0.003
SLOW_S_MAX = 0.4
"""What one message in fifty takes, at most."""

HELD_S_MAX = 20.0
"""A connection that got nothing through for so long is given up by both sides (keepalive)."""


class Server:
    """What `add_...Servicer_to_server` takes; its handlers are guarded as the real server guards them."""

    def __init__(self, process: Process) -> None:
        self.process = process
        self.handlers: dict[str, Any] = {}

    def add_generic_rpc_handlers(self, handlers: Any) -> None:
        """The registered ones suffice."""

    def add_registered_method_handlers(self, service: str, handlers: dict[str, Any]) -> None:
        """As grpc's."""
        for name, handler in handlers.items():
            self.handlers[f"/{service}/{name}"] = _guarded(f"/{service}/{name}", handler)


class _Details:
    def __init__(self, method: str) -> None:
        self.method = method


def _guarded(method: str, handler: Any) -> Any:
    async def found(_: Any) -> Any:
        return handler

    work = ErrorInterceptor().intercept_service(found, _Details(method))  # pyright: ignore[reportArgumentType]
    try:
        work.send(None)
    except StopIteration as ended:
        return ended.value
    raise AssertionError("the interceptor does not wait")


class Network:
    """Who listens where, who is cut off from whom, and how unlucky calls are."""

    def __init__(self, loop: SimulatedLoop) -> None:
        self.loop = loop
        self.random = loop.random
        self.servers: dict[str, Server] = {}
        self.cuts: set[frozenset[str]] = set()
        # Chance that a connection breaks under a call; 0 where all is well.
        self.bad_luck = 0.0
        self._held: list[tuple[str, str, Process, Callable[[], None]]] = []

    def latency_s(self) -> float:
        """How long the next message takes."""
        if self.random.random() < 0.02:
            return self.random.uniform(LATENCY_S_MAX, SLOW_S_MAX)
        return self.random.uniform(LATENCY_S_MIN, LATENCY_S_MAX)

    def is_unlucky(self) -> bool:
        """Whether something breaks now."""
        return self.bad_luck > 0 and self.random.random() < self.bad_luck

    def send(self, src: str, to: Process, arrive: Callable[[], None], not_before_s: float = 0.0) -> float:
        """Lets something arrive in a process after a while, or when it can be reached again; when at the earliest."""
        at_s = max(self.loop.now_s + self.latency_s(), not_before_s)
        self.loop.call_at(at_s, self._arrive, src, to, arrive, context=self.loop.world.context)
        return at_s

    def _arrive(self, src: str, to: Process, arrive: Callable[[], None]) -> None:
        if frozenset((src, to.name)) in self.cuts:
            self._held.append((src, to.name, to, arrive))
        elif to.is_alive:
            to.soon(arrive)

    def cut(self, one: str, other: str) -> None:
        """Nothing gets from one to the other, either way."""
        self.cuts.add(frozenset((one, other)))

    def heal(self, one: str, other: str) -> None:
        """They reach each other again, and what was held up arrives in its order."""
        self.cuts.discard(frozenset((one, other)))
        held, self._held = self._held, []
        for src, name, to, arrive in held:
            if frozenset((src, name)) in self.cuts:
                self._held.append((src, name, to, arrive))
            elif to.is_alive:
                to.soon(arrive)

    def heal_all(self) -> None:
        """The network is well from now on."""
        self.bad_luck = 0.0
        for pair in list(self.cuts):
            self.heal(*pair)


def failed(code: grpc.StatusCode, details: str, trailing: Any = ()) -> AioRpcError:
    """What a failed call raises."""
    return AioRpcError(code, Metadata(), Metadata(*trailing), details=details)


def _lost() -> AioRpcError:
    return failed(grpc.StatusCode.UNAVAILABLE, "connection lost")


class Context:
    """A ServicerContext."""

    def __init__(self) -> None:
        self.status: Any = None
        self.is_over = False
        self._callbacks: list[Callable[[Any], None]] = []

    def add_done_callback(self, callback: Callable[[Any], None]) -> None:
        self._callbacks.append(callback)

    def cancelled(self) -> bool:
        return self.is_over

    def done(self) -> bool:
        return self.is_over

    async def send_initial_metadata(self, metadata: Any) -> None:
        del metadata

    async def abort_with_status(self, status: Any) -> None:
        self.status = status
        raise grpc.aio.AbortError

    def end(self) -> None:
        """The call is over, as its callbacks are told."""
        if not self.is_over:
            self.is_over = True
            for callback in self._callbacks:
                callback(self)


class Channel:
    """A grpc.aio.Channel from the process that makes it."""

    def __init__(self, network: Network, address: str) -> None:
        self.network, self.address = network, address
        self.process = PROCESS.get()
        self.streams: list[Stream] = []

    def server(self) -> Server | None:
        """Who listens there now."""
        server = self.network.servers.get(self.address)
        return server if server is not None and server.process.is_alive else None

    def unary_unary(self, method: str, request_serializer: Any, response_deserializer: Any, **_: Any) -> Any:
        async def call(request: Any, timeout: float | None = None, **_: Any) -> Any:  # noqa: ASYNC109 - grpc's name
            return response_deserializer(
                await _Unary(self, method).run(request_serializer(request), timeout or RPC_DEADLINE_S)
            )

        return call

    def stream_stream(self, method: str, request_serializer: Any, response_deserializer: Any, **_: Any) -> Any:
        def call(**_: Any) -> Stream:
            return Stream(self, method, request_serializer, response_deserializer)

        return call

    def unary_stream(self, method: str, request_serializer: Any, response_deserializer: Any, **_: Any) -> Any:
        def call(request: Any, **_: Any) -> Stream:
            stream = Stream(self, method, request_serializer, response_deserializer)
            stream.push(request)
            return stream

        return call

    stream_unary = unary_stream

    async def channel_ready(self) -> None:
        """Returns when somebody listens there."""
        while self.server() is None:  # noqa: ASYNC110 - as gRPC does, by trying again
            await asyncio.sleep(0.05)

    async def close(self, grace: float | None = None) -> None:
        """Ends its streams."""
        del grace
        for stream in self.streams:
            stream.cancel()


class _Unary:
    """One unary call."""

    def __init__(self, channel: Channel, method: str) -> None:
        self._network, self._channel, self._method = channel.network, channel, method
        self._answer: asyncio.Future[bytes] = channel.network.loop.create_future()
        self._handling: asyncio.Task[Any] | None = None
        self._context = Context()

    async def run(self, request: bytes, timeout_s: float) -> bytes:
        server = self._channel.server()
        network, mine = self._network, self._channel.process
        if server is None:
            await asyncio.sleep(network.latency_s())
            raise failed(grpc.StatusCode.UNAVAILABLE, "nobody listens there")
        network.loop.note(f"{mine.name} > {server.process.name} {self._method.rpartition('/')[2]}")
        loses_request, loses_answer = network.is_unlucky(), network.is_unlucky()
        if loses_request:
            network.loop.call_later(network.latency_s(), self._fail)
        else:
            network.send(mine.name, server.process, lambda: self._handle(server, request, lost=loses_answer))
        server.process.on_death.append(self._server_died)
        try:
            async with asyncio.timeout(timeout_s):
                return await self._answer
        except TimeoutError:
            raise failed(grpc.StatusCode.DEADLINE_EXCEEDED, "Deadline Exceeded") from None
        finally:
            server.process.on_death.remove(self._server_died)
            if self._handling is not None and not self._handling.done():
                network.send(mine.name, server.process, self._cancel)

    def _cancel(self) -> None:
        self._context.end()
        if self._handling is not None:
            self._handling.cancel()

    def _fail(self) -> None:
        if not self._answer.done():
            if self._network.random.random() < 0.1:
                self._answer.cancel()  # grpc.aio tells a lost connection so at times
            else:
                self._answer.set_exception(_lost())

    def _server_died(self) -> None:
        self._network.send("world", self._channel.process, self._fail)

    def _handle(self, server: Server, request: bytes, *, lost: bool) -> None:
        self._handling = server.process.spawn(self._serve(server, request, lost=lost))

    async def _serve(self, server: Server, request: bytes, *, lost: bool) -> None:
        handler = server.handlers[self._method]
        outcome: bytes | Exception
        try:
            response = await handler.unary_unary(handler.request_deserializer(request), self._context)
            outcome = handler.response_serializer(response)
        except grpc.aio.AbortError:
            status = self._context.status
            outcome = failed(status.code, status.details, status.trailing_metadata)
        except asyncio.CancelledError:
            return
        self._context.end()
        arrive = self._fail if lost else lambda: self._take(outcome)
        self._network.send(server.process.name, self._channel.process, arrive)

    def _take(self, outcome: bytes | Exception) -> None:
        if self._answer.done():
            return
        if isinstance(outcome, Exception):
            self._answer.set_exception(outcome)
        else:
            self._answer.set_result(outcome)


class Stream:
    """One streaming call, both ends of it."""

    def __init__(self, channel: Channel, method: str, serialize: Any, deserialize: Any) -> None:
        self._network, self._channel, self._method = channel.network, channel, method
        self._serialize, self._deserialize = serialize, deserialize
        self._server = channel.server()
        self._context = Context()
        self._in: asyncio.Queue[Any] = asyncio.Queue()
        self._out: asyncio.Queue[Any] = asyncio.Queue()
        self._sent_s = self._answered_s = 0.0
        self._ended: Exception | None = None
        self._handling: asyncio.Task[Any] | None = None
        channel.streams.append(self)
        if self._server is None:
            self._network.loop.call_later(self._network.latency_s(), self._lose)
            return
        self._network.loop.note(f"{channel.process.name} = {self._server.process.name} {method.rpartition('/')[2]}")
        self._sent_s = self._network.send(channel.process.name, self._server.process, self._begin)
        self._server.process.on_death.append(self._server_died)
        channel.process.on_death.append(self._client_died)

    # The client's end.

    def push(self, request: Any) -> None:
        """Sends a message; what a broken connection swallows is not noticed at once."""
        if self._ended is not None:
            raise self._ended
        if self._server is None:
            return
        if self._network.is_unlucky():
            self.break_off()
            return
        data = self._serialize(request)
        self._sent_s = self._network.send(
            self._channel.process.name, self._server.process, lambda: self._in.put_nowait(data), self._sent_s
        )

    async def write(self, request: Any) -> None:
        self.push(request)

    async def read(self) -> Any:
        if self._ended is not None and self._out.empty():
            raise self._ended
        message = await self._out.get()
        if isinstance(message, Exception):
            raise message
        return grpc.aio.EOF if message is None else self._deserialize(message)

    async def __aiter__(self) -> AsyncIterator[Any]:
        while True:
            message = await self.read()
            if message is grpc.aio.EOF:
                return
            yield message

    async def initial_metadata(self) -> None:
        """It comes with the first answer or soon."""
        await asyncio.sleep(self._network.latency_s())

    def cancel(self) -> bool:
        """The client leaves."""
        if self._ended is None:
            self._ended = failed(grpc.StatusCode.CANCELLED, "cancelled")
            self._unregister()
            if self._server is not None:
                self._network.send(self._channel.process.name, self._server.process, self._over, self._sent_s)
        return True

    # How it ends.

    def break_off(self) -> None:
        """The connection breaks: each side learns of it in its own time."""
        if self._server is not None:
            self._network.send("world", self._channel.process, self._lose)
            self._network.send("world", self._server.process, self._over)

    def _lose(self) -> None:
        if self._ended is None:
            self._ended = _lost()
            self._unregister()
            self._out.put_nowait(self._ended)

    def _server_died(self) -> None:
        self._network.send("world", self._channel.process, self._lose)

    def _client_died(self) -> None:
        assert self._server is not None, "there was one"
        # A machine that lost its power says no farewell: the other side hears of it by keepalive.
        silent = self._network.random.random() < 0.2
        at_s = self._network.loop.now_s + (HELD_S_MAX if silent else 0.0)
        self._network.send("world", self._server.process, self._over, at_s)

    def _unregister(self) -> None:
        if self._server is None:
            return
        for process, tell in (
            (self._server.process, self._server_died),
            (self._channel.process, self._client_died),
        ):
            if tell in process.on_death:
                process.on_death.remove(tell)

    # The server's end.

    def _begin(self) -> None:
        assert self._server is not None, "it arrived"
        if not self._context.is_over:
            self._handling = self._server.process.spawn(self._serve(self._server))

    def _over(self) -> None:
        """The server learns that the call is over."""
        if self._context.is_over:
            return
        if self._handling is not None:
            self._handling.cancel()
        self._context.end()

    async def _requests(self, handler: Any) -> AsyncIterator[Any]:
        while True:
            yield handler.request_deserializer(await self._in.get())

    async def _serve(self, server: Server) -> None:
        handler = server.handlers[self._method]
        try:
            if handler.stream_stream is not None:
                responses = handler.stream_stream(self._requests(handler), self._context)
            else:
                responses = handler.unary_stream(handler.request_deserializer(await self._in.get()), self._context)
            async for response in responses:
                self._reply(handler.response_serializer(response))
        except grpc.aio.AbortError:
            status = self._context.status
            self._reply(failed(status.code, status.details, status.trailing_metadata))
        except asyncio.CancelledError:
            return
        else:
            self._reply(None)
        self._context.end()

    def _reply(self, message: Any) -> None:
        assert self._server is not None, "it serves"
        if self._network.is_unlucky():
            self.break_off()
            return
        self._answered_s = self._network.send(
            self._server.process.name, self._channel.process, lambda: self._receive(message), self._answered_s
        )

    def _receive(self, message: Any) -> None:
        if self._ended is not None:
            return
        if message is None or isinstance(message, Exception):
            self._ended = message or failed(grpc.StatusCode.OK, "ended")
            self._unregister()
        self._out.put_nowait(message)


def begin(process: Process, work: Coroutine[Any, Any, Any]) -> None:
    """Begins a process's main task: an error in it is a fault of the simulation or of what it runs."""

    async def watched() -> None:
        try:
            await work
        except asyncio.CancelledError:
            raise
        except BaseException as error:
            process.loop.faults.append(f"{process.name} ended: {error!r}")
            raise

    process.spawn(watched())
