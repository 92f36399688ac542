"""What stands around every handler: errors become a Status, and nothing ever leaves a caller hanging."""

import asyncio
import functools
import inspect
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import grpc

from lantern_kernel import reasons
from lantern_kernel.errors import LanternError
from lantern_serving import status

log = logging.getLogger(__name__)


class ErrorInterceptor(grpc.aio.ServerInterceptor):
    """Ends a failed handler with the Status of its error.

    A LanternError tells its own. A CancelledError that the client did not cause would make grpc.aio send nothing at all
    (grpc #29248), so it becomes UNAVAILABLE. Anything else is a fault of ours: logged, and INTERNAL to the caller.
    """

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Any]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> Any:
        """Wraps the handler of a call."""
        handler = await continuation(handler_call_details)
        if handler is None or not handler_call_details.method.startswith("/lantern."):
            return handler
        method = handler_call_details.method
        if handler.unary_unary:
            return handler._replace(unary_unary=_guard_unary(handler.unary_unary, method))
        if handler.stream_unary:
            return handler._replace(stream_unary=_guard_unary(handler.stream_unary, method))
        if handler.unary_stream:
            return handler._replace(unary_stream=_guard_stream(handler.unary_stream, method))
        if handler.stream_stream:
            return handler._replace(stream_stream=_guard_stream(handler.stream_stream, method))
        return handler


def _guard_unary(behaviour: Callable[..., Awaitable[Any]], method: str) -> Callable[..., Awaitable[Any]]:
    @functools.wraps(behaviour)
    async def guarded(request: Any, context: Any) -> Any:
        try:
            return await behaviour(request, context)
        except (Exception, asyncio.CancelledError) as error:
            await _end(error, context, method)

    return guarded


def _guard_stream(behaviour: Callable[..., Any], method: str) -> Callable[..., AsyncIterator[Any]]:
    assert inspect.isasyncgenfunction(behaviour), f"{method}: streaming handlers are async generators"

    @functools.wraps(behaviour)
    async def guarded(request: Any, context: Any) -> AsyncIterator[Any]:
        try:
            async for response in behaviour(request, context):
                yield response
        except (Exception, asyncio.CancelledError) as error:
            await _end(error, context, method)

    return guarded


async def _end(error: BaseException, context: Any, method: str) -> None:
    if isinstance(error, grpc.aio.AbortError):
        raise error
    if isinstance(error, asyncio.CancelledError):
        if context.cancelled() or context.done():
            raise error
        error = LanternError(reasons.UNAVAILABLE, "the service is stopping", retry_after_s=0.1)
    if not isinstance(error, LanternError):
        log.error("handler failed", extra={"action": "rpc_failed", "method": method}, exc_info=error)
        error = LanternError(reasons.INTERNAL, f"{type(error).__name__} in the service; its log says more")
    await context.abort_with_status(status.to_grpc(error))
