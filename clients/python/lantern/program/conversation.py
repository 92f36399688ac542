"""What others say to a running workflow and ask of it: its updates and queries."""

import asyncio
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from lantern.program import conversion
from lantern.program.failures import StepError, describe
from lantern_kernel import json_bytes, names, reasons
from lantern_kernel.commands import CompleteUpdate
from lantern_kernel.errors import InvalidField, LanternError
from lantern_kernel.outcomes import Notice
from lantern_kernel.payloads import RunErrorFacts
from lantern_kernel.texts import printable

Handler = Callable[..., Any]


@dataclass(frozen=True, kw_only=True, slots=True)
class _Update:
    """What takes updates of one name."""

    # Async or not.
    handler: Handler
    # Raises where the update is not acceptable; None for whatever comes.
    validator: Handler | None
    # Where it was named.
    source: str


class Conversation:
    """The handlers that the workflow has named, by name."""

    def __init__(self, answer: Callable[[CompleteUpdate], None]) -> None:
        """`answer`: takes the answer to an update, while the loop of the workflow runs."""
        self._answer = answer
        self._queries: dict[str, Handler] = {}
        self._updates: dict[str, _Update] = {}

    @property
    def takes_updates(self) -> bool:
        """Whether an update can make the workflow go on."""
        return bool(self._updates)

    def on_query(self, name: str, handler: Handler) -> None:
        """Names what answers a query, in place of what was named before."""
        names.check_user_id("query name", name)
        if inspect.iscoroutinefunction(handler):
            raise InvalidField("handler", f"query {name} must be answered at once: a plain function, not an async one")
        self._queries[name] = handler

    def on_update(self, name: str, handler: Handler, validator: Handler | None, source: str) -> None:
        """Names what takes an update, in place of what was named before."""
        names.check_user_id("update name", name)
        self._updates[name] = _Update(handler=handler, validator=validator, source=source)

    def query(self, name: str, data: bytes | None) -> bytes:
        """The answer to a query, JSON.

        Raises:
            LanternError: QUERY_NOT_FOUND; QUERY_FAILED, the handler raised, or its answer is nothing that JSON can say.
        """
        handler = self._queries.get(name)
        if handler is None:
            raise LanternError(reasons.QUERY_NOT_FOUND, _unknown("query", name, self._queries), query=name)
        try:
            return conversion.encode(handler(*_arguments(handler, data)), "answer")
        except Exception as error:
            message = error.message if isinstance(error, LanternError) else describe(error)
            raise LanternError(reasons.QUERY_FAILED, printable(message), query=name) from None

    def update(self, notice: Notice) -> None:
        """Takes an update: validates it, and has its handler begin; the answer comes when that has ended."""
        update = self._updates.get(notice.name)
        if update is None:
            refusal = InvalidField("name", _unknown("update", notice.name, self._updates))
            self._answer(_refused(notice.step_id, "", refusal))
            return
        try:
            if update.validator is not None:
                update.validator(*_arguments(update.validator, notice.data))
            value = update.handler(*_arguments(update.handler, notice.data))
        except Exception as error:
            self._answer(_refused(notice.step_id, update.source, error))
            return
        if not inspect.iscoroutine(value):
            self._answer(_completed(notice.step_id, update.source, value))
            return
        task = asyncio.ensure_future(value)
        task.add_done_callback(lambda ended: self._answer(_end_of(notice.step_id, update.source, ended)))


def _arguments(handler: Handler, data: bytes | None) -> tuple[Any, ...]:
    """What to call a handler with: nothing where it takes nothing."""
    takes = [
        each
        for each in inspect.signature(handler).parameters.values()
        if each.kind
        in {
            inspect.Parameter.POSITIONAL_ONLY,
            inspect.Parameter.POSITIONAL_OR_KEYWORD,
            inspect.Parameter.VAR_POSITIONAL,
        }
    ]
    if not takes:
        return ()
    value = json_bytes.decode_recorded(data) if data else None
    return (conversion.signature_of(handler).read_argument(0, value),)


def _unknown(what: str, name: str, known: "dict[str, Any]") -> str:
    return f"the workflow has no {what} {name!r}; it has {', '.join(known) or 'none'}"


def _end_of(update_id: str, source: str, task: "asyncio.Future[Any]") -> CompleteUpdate:
    if task.cancelled():
        return _refused(update_id, source, LanternError(reasons.CANCEL_REQUESTED, "its handler was cancelled"))
    error = task.exception()
    return _completed(update_id, source, task.result()) if error is None else _refused(update_id, source, error)


def _completed(update_id: str, source: str, value: Any) -> CompleteUpdate:
    try:
        return CompleteUpdate(step_id=update_id, source=source, result=conversion.encode(value, "result"))
    except InvalidField as refusal:
        return _refused(update_id, source, refusal)


def _refused(update_id: str, source: str, error: BaseException) -> CompleteUpdate:
    match error:
        case StepError():
            facts = RunErrorFacts(
                code=error.code, message=error.message, step_id=error.step_id, details=dict(error.details) or None
            )
        case LanternError():
            facts = RunErrorFacts(code=error.reason, message=error.message, details=dict(error.details) or None)
        case _:
            facts = RunErrorFacts(code=reasons.WORKFLOW_ERROR, message=printable(describe(error)))
    return CompleteUpdate(step_id=update_id, source=source, error=facts)
