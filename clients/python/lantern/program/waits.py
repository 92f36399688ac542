"""The part of `ctx` that deals with others: signals, approvals, children, queries, updates, sagas, patches."""

import asyncio
import logging
import math
from collections.abc import Awaitable, Callable, Coroutine, MutableMapping
from dataclasses import dataclass
from typing import Any, NoReturn, TypeVar

from lantern.program import conversion
from lantern.program.asks import Asks, RunInfo, caller_source
from lantern.program.failures import ContinueAsNewRequest
from lantern.program.saga import Saga
from lantern.program.scopes import CancelScope, shielded
from lantern_kernel import json_bytes, names
from lantern_kernel.bounds import APPROVAL_TITLE_CHARACTERS_MAX
from lantern_kernel.commands import AwaitSignal, RequestApproval, StartChild, StartTimer
from lantern_kernel.errors import InvalidField
from lantern_kernel.outcomes import Outcome

SLEEP_S_MAX = 100 * 366 * 24 * 3600
_NOTHING: Any = object()
_T = TypeVar("_T")
_H = TypeVar("_H", bound=Callable[..., Any])


@dataclass(frozen=True, kw_only=True, slots=True)
class Approval:
    """How somebody decided."""

    # approved, denied or expired.
    decision: str
    # Who decided; empty for an expiry.
    by: str
    # What whoever decided had to say; None for nothing.
    data: Any

    @property
    def is_approved(self) -> bool:
        """Whether it was approved."""
        return self.decision == "approved"


class QuietLogger(logging.LoggerAdapter[logging.Logger]):
    """A logger that says nothing while the workflow only goes through what it has done before."""

    def __init__(self, host: Asks) -> None:
        super().__init__(logging.getLogger("lantern.workflow"), None)
        self._host = host

    def isEnabledFor(self, level: int) -> bool:  # noqa: N802 - logging's name
        """As of any logger; never while replaying."""
        return not self._host.is_replaying and super().isEnabledFor(level)

    def process(self, msg: Any, kwargs: MutableMapping[str, Any]) -> tuple[Any, MutableMapping[str, Any]]:
        """Adds the run to each record."""
        info = self._host.info
        kwargs["extra"] = {"run_id": info.run_id, "workflow_id": info.workflow_id, **(kwargs.get("extra") or {})}
        return msg, kwargs


class Waits:
    """See the module; a Context is one.

    Attributes:
        info: The run.
        log: A logger that is quiet on replay.
    """

    def __init__(self, host: Asks) -> None:
        self.info: RunInfo = host.info
        self.log = QuietLogger(host)
        self._host = host

    def sleep(self, seconds: float, /) -> Coroutine[Any, Any, None]:
        """Waits, across crashes and deploys, too; to be awaited. Waits of any length cost nothing while they last."""
        source = caller_source(self._host, 1)
        _check_seconds("seconds", seconds, 0)
        duration_us = round(seconds * 1_000_000)

        async def run() -> None:
            step_id = self._host.name_once("sleep")
            await self._host.ask(StartTimer(step_id=step_id, duration_us=duration_us, source=source))

        return run()

    def wait_signal(
        self, name: str, /, *, timeout_s: float | None = None, into: Any = None
    ) -> Coroutine[Any, Any, Any]:
        """The content of the next signal of a name that nobody has taken yet; to be awaited.

        Signals that came before are kept until they are asked for, in the order of their coming.

        Args:
            name: The signal's name.
            timeout_s: How long to wait, seconds; by default without end.
            into: The type to make of it, as an annotation; by default what JSON gives.

        Raises:
            TimeoutError: None came in time.
        """
        source = caller_source(self._host, 1)
        names.check_user_id("signal name", name)
        if timeout_s is not None:
            _check_seconds("timeout_s", timeout_s, 0)

        async def run() -> Any:
            command = AwaitSignal(step_id=self._host.name_once(f"signal:{name}"), name=name, source=source)
            async with asyncio.timeout(timeout_s):
                outcome = await self._host.ask(command)
            return _value(outcome, into, "signal")

        return run()

    def approval(
        self,
        name: str,
        /,
        *,
        title: str = "",
        assignee: str = "",
        data: Any = _NOTHING,
        timeout_s: float | None = None,
    ) -> Coroutine[Any, Any, Approval]:
        """Has somebody decide; to be awaited.

        Args:
            name: The approval's name.
            title: For people, one line; by default the name.
            assignee: Whose inbox it is in; by default anybody's.
            data: For whoever decides; JSON.
            timeout_s: After how many seconds it expires; by default never.
        """
        source = caller_source(self._host, 1)
        names.check_user_id("approval name", name)
        if len(title) > APPROVAL_TITLE_CHARACTERS_MAX:
            raise InvalidField("title", f"has {len(title)} characters, more than {APPROVAL_TITLE_CHARACTERS_MAX}")
        if timeout_s is not None:
            _check_seconds("timeout_s", timeout_s, 0.001)
        raw = None if data is _NOTHING else conversion.encode(data, "data")

        async def run() -> Approval:
            command = RequestApproval(
                step_id=self._host.name_once(name),
                name=name,
                title=title or name,
                source=source,
                assignee=assignee,
                data=raw,
                timeout_us=None if timeout_s is None else round(timeout_s * 1_000_000),
            )
            outcome = await self._host.ask(command)
            return Approval(
                decision=str(outcome.facts.get("decision", "")),
                by=str(outcome.facts.get("by", "")),
                data=None if outcome.data is None else json_bytes.decode_recorded(outcome.data),
            )

        return run()

    def child(
        self,
        name: str,
        agent: str | Callable[..., Any],
        input: Any = None,  # noqa: A002 - the word that users know it by
        /,
        *,
        workflow_id: str = "",
        abandon: bool = False,
        into: Any = None,
    ) -> Coroutine[Any, Any, Any]:
        """Has another run do a part of the work and gives its result; to be awaited.

        If the run is cancelled, or stops waiting, so is the child.

        Args:
            name: The child's name in this run.
            agent: The agent's name, or a workflow function.
            input: JSON.
            workflow_id: The child's own; by default none.
            abandon: Whether the child goes on when this run ends or stops waiting for it.
            into: The type to make of the result, as an annotation; by default that of the workflow function.

        Raises:
            ChildFailed: It ended without a result.
        """
        source = caller_source(self._host, 1)
        names.check_user_id("child name", name)
        agent_name = agent_name_of(agent)
        if workflow_id:
            names.check_user_id("workflow_id", workflow_id)
        raw = conversion.encode(input, "input")
        reader = conversion.signature_of(agent).result if callable(agent) and into is None else None

        async def run() -> Any:
            command = StartChild(
                step_id=self._host.name_once(name),
                name=name,
                agent_name=agent_name,
                input=raw,
                source=source,
                workflow_id=workflow_id,
                abandon=abandon,
            )
            value = _value(await self._host.ask(command), into, "result")
            return value if reader is None else reader(value, "result")

        return run()

    def continue_as_new(self, input: Any = None, /) -> NoReturn:  # noqa: A002 - the word that users know it by
        """Ends this run and goes on as a new one with an empty history: same agent, same workflow id.

        Args:
            input: The new run's input; JSON.
        """
        raise ContinueAsNewRequest(conversion.encode(input, "input"))

    def patched(self, name: str, /) -> bool:
        """Whether to go the new way at a place where the code was changed: `if ctx.patched("by-courier"): ...`.

        False for runs that came past this place before the change, True for all others, on every replay the same.
        """
        names.check_user_id("patch name", name)
        return self._host.patched(name, caller_source(self._host, 1))

    def deprecate_patch(self, name: str, /) -> None:
        """Stands where `patched` stood once no run goes the old way, until all runs that noted it have ended."""
        names.check_user_id("patch name", name)
        self._host.deprecate_patch(name, caller_source(self._host, 1))

    def saga(self) -> Saga:
        """Undoes what was done when the work fails: see Saga."""
        return Saga(self._host.saga_opened, self._host.saga_closed)

    def scope(self) -> CancelScope:
        """A block that can be cancelled on its own: see CancelScope."""
        return CancelScope()

    def shield(self, awaitable: Awaitable[_T], /) -> Coroutine[Any, Any, _T]:
        """Awaits to the end, though the run be cancelled meanwhile; then raises the cancel. To be awaited."""
        return shielded(awaitable)

    def query(self, function: _H, /) -> _H:
        """Marks a function that answers queries of its name: `@ctx.query`. It must not change or await anything."""
        self._host.conversation.on_query(function.__name__, function)
        return function

    def on_query(self, name: str, handler: Callable[..., Any], /) -> None:
        """Names what answers a query; a plain function that takes the query's argument or nothing."""
        self._host.conversation.on_query(name, handler)

    def update(self, function: _H, /) -> _H:
        """Marks a function that takes updates of its name: `@ctx.update`. It may be async and use ctx."""
        self.on_update(function.__name__, function)
        return function

    def on_update(self, name: str, handler: Callable[..., Any], /, validator: Callable[..., Any] | None = None) -> None:
        """Names what takes an update and gives its result.

        Args:
            name: The update's name.
            handler: Async or not; takes the update's argument or nothing.
            validator: A plain function of the same argument; what it raises refuses the update.
        """
        source = self._host.source_of(handler.__code__.co_filename, handler.__code__.co_firstlineno)
        self._host.conversation.on_update(name, handler, validator, source)


def agent_name_of(agent: str | Callable[..., Any]) -> str:
    """The name of an agent, or of a workflow function; InvalidField where it is neither."""
    if isinstance(agent, str):
        return names.check_user_id("agent", agent)
    name = getattr(agent, "__lantern_agent__", "")
    if not name:
        raise InvalidField("agent", f"{agent!r} is no workflow: mark it with @lantern.workflow, or give its name")
    return name


def _value(outcome: Outcome, into: Any, field: str) -> Any:
    value = None if outcome.data is None else json_bytes.decode_recorded(outcome.data)
    reader = None if into is None else conversion.reader_of(into)
    return value if reader is None else reader(value, field)


def _check_seconds(field: str, seconds: float, least: float) -> None:
    if not (math.isfinite(seconds) and least <= seconds <= SLEEP_S_MAX):
        raise InvalidField(field, f"{seconds} is not between {least} and {SLEEP_S_MAX}")
