"""One attempt of one step: claimed where its author asks for that, executed, bounded in time, settled (SPEC E4)."""

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable

from lantern_executor.domain.step import CLAIM_NONCE_BYTES, SideEffect, StepCall, StepContext
from lantern_executor.ports import JournalPort, Sources
from lantern_kernel import failures, reasons
from lantern_kernel.blobs import Content
from lantern_kernel.bounds import PAYLOAD_BYTES_MAX, PAYLOAD_INLINE_BYTES_MAX
from lantern_kernel.errors import LanternError
from lantern_kernel.retry import Failure
from lantern_kernel.step_ends import Completed, StepEnd, Undecided
from lantern_kernel.texts import printable
from lantern_kernel.work import StepWork

log = logging.getLogger(__name__)


class StepExecution:
    """Executes the steps of one drive.

    Args:
        journal: Where claims are made and settled.
        sources: Names each claim.
        be_sure: Returns while the lease is certain to be ours, or raises; awaited last before anything is dispatched.
        now_us: The journal's time.
    """

    def __init__(
        self,
        journal: JournalPort,
        sources: Sources,
        be_sure: Callable[[], Awaitable[None]],
        now_us: Callable[[], int],
    ) -> None:
        self._journal = journal
        self._sources = sources
        self._be_sure = be_sure
        self._now_us = now_us

    async def execute(self, work: StepWork, call: StepCall, context: StepContext) -> StepEnd:
        """How the attempt ended.

        Raises:
            LanternError: Its claim could not be made, or the lease is not ours any more; nothing was dispatched.
        """
        async with call.room():  # the wait for it comes before the last look at the lease, and is no time of the step's
            return await self._execute(work, call, context)

    async def _execute(self, work: StepWork, call: StepCall, context: StepContext) -> StepEnd:
        command = work.command
        if not command.claim:
            await self._be_sure()
            return await self._kept(await self._run(work, call, context), context)
        nonce = self._sources.random_bytes(CLAIM_NONCE_BYTES)
        effect = await self._journal.claim_side_effect(context, command.sink, nonce)
        match effect.state:
            case "delivered":
                output = b"" if effect.result_blob is not None else effect.result or b"null"
                return Completed(output=output, blob=effect.result_blob)
            case "refused":
                return _refused(effect, work)
            case _:
                pass
        if not effect.claimed and command.claim != "retry":  # an attempt before this one may have delivered it
            return Undecided(key=context.key) if command.claim == "ask" else Completed(output=b"null")
        await self._be_sure()  # the claim took its time
        end = await self._kept(await self._run(work, call, context), context)
        await self._settle(work, end, context)
        return end

    async def _run(self, work: StepWork, call: StepCall, context: StepContext) -> Completed | Failure:
        timeout_ms, total_ms = work.command.timeout_ms, work.command.total_timeout_ms
        bound_s = None if timeout_ms is None else timeout_ms / 1_000
        if work.deadline_us is not None and total_ms is not None:
            left_s = (work.deadline_us - self._now_us()) / 1e6
            if bound_s is None or left_s < bound_s:
                bound_s, timeout_ms = left_s, total_ms
        if bound_s is None or timeout_ms is None:
            return await call.run(context)
        if bound_s <= 0:  # the attempts before this one, or the time that nobody drove it, took all there was
            return failures.timed_out(work.command.type, context.step_id, timeout_ms)
        scope = asyncio.timeout(bound_s)
        try:
            async with scope:
                return await call.run(context)
        except TimeoutError:
            if not scope.expired():
                raise
            return failures.timed_out(work.command.type, context.step_id, timeout_ms)

    async def _kept(self, end: StepEnd, context: StepContext) -> StepEnd:
        """The same end, its output kept as a blob where it is too large for an event."""
        if isinstance(end, Completed) and PAYLOAD_INLINE_BYTES_MAX < len(end.output) <= PAYLOAD_BYTES_MAX:
            blob = await self._journal.put_blob(context.tenant_id, end.output)
            return Completed(output=end.output, blob=blob)
        return end

    async def _settle(self, work: StepWork, end: StepEnd, context: StepContext) -> None:
        """Records what is known of the delivery; an unknown outcome leaves the claim open.

        A refusal counts only while every request under the key was refused.
        """
        result: Content
        if isinstance(end, Completed):
            delivered, result = True, end.blob or end.output
        elif isinstance(end, Failure) and end.outcome == "not_executed" and not work.key_frozen:
            facts = {"code": printable(end.code), "message": printable(end.message)}
            delivered, result = False, json.dumps(facts).encode()
        else:
            return
        try:
            await self._journal.settle_side_effect(context, delivered=delivered, result=result)
        except LanternError as error:
            # The step's own end is what the run goes by; an open claim only makes a later look at it cautious.
            log.warning(
                "claim not settled",
                extra={
                    "action": "settle_failed",
                    "run_id": context.run_id,
                    "step_id": context.step_id,
                    "reason": error.reason,
                },
            )


def _refused(effect: SideEffect, work: StepWork) -> Failure:
    """The failure that was recorded with the claim: documented to have done nothing."""
    code, message = reasons.STEP_FAILED, "the delivery was refused"
    try:
        facts = json.loads(effect.result)
        code, message = str(facts["code"]), str(facts["message"])
    except (ValueError, KeyError, TypeError):
        pass  # settled by an operator, in his own words
    return failures.refused(work.command.type, code, message)
