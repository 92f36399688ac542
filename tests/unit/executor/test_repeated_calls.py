"""Goal: a call whose answer was lost is repeated as it was, and ends the same.

Method: the adapter over a channel that is a table of scripted methods; a claim is answered by one who tells a repeat by
its nonce, as the journal does.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import grpc
import pytest
from executor_fakes import simulate

from lantern.api.journal.v1 import worker_service_pb2 as pb
from lantern_executor.adapters.addresses import JournalAddresses
from lantern_executor.adapters.journal import GrpcJournal, JournalProcesses
from lantern_executor.adapters.session import Session, WorkerIdentity
from lantern_executor.domain.step import StepContext
from lantern_kernel import reasons
from lantern_kernel.errors import LanternError

CONTEXT = StepContext(run_id="run", workflow_id="", step_id="a", attempt=1, key_attempt=1, key="k", epoch=3)
Method = Callable[[Any], Awaitable[Any]]


class TableChannel:
    """Answers unary calls by the last part of their path; the others are never made."""

    def __init__(self, **methods: Method) -> None:
        self.methods = methods

    def unary_unary(self, path: str, *args: Any, **kwargs: Any) -> Method | None:
        return self.methods.get(path.rpartition("/")[2])

    def unary_stream(self, path: str, *args: Any, **kwargs: Any) -> None:
        return

    def stream_unary(self, path: str, *args: Any, **kwargs: Any) -> None:
        return

    def stream_stream(self, path: str, *args: Any, **kwargs: Any) -> None:
        return


def _journal(**methods: Method) -> GrpcJournal:
    addresses = JournalAddresses(["journal:1"])
    session = Session(addresses, WorkerIdentity(worker_id="w1", capacity=1, offers=()))
    channel: Any = TableChannel(**methods)
    return GrpcJournal(JournalProcesses(addresses, lambda _: channel), session)


def _failed(code: grpc.StatusCode) -> grpc.aio.AioRpcError:
    return grpc.aio.AioRpcError(code, grpc.aio.Metadata(), grpc.aio.Metadata(), details="scripted")


class Claims:
    """The journal's side of claims; the first answers are lost."""

    def __init__(self, lost: Sequence[BaseException]) -> None:
        self.lost = list(lost)
        self.requests: list[pb.ClaimSideEffectRequest] = []
        self.nonce = b""

    async def claim(self, request: pb.ClaimSideEffectRequest) -> pb.ClaimSideEffectResponse:
        self.requests.append(pb.ClaimSideEffectRequest.FromString(request.SerializeToString()))
        self.nonce = self.nonce or request.nonce
        if self.lost:
            raise self.lost.pop(0)
        effect = pb.SideEffect(state=pb.SideEffect.STATE_CLAIMED)
        return pb.ClaimSideEffectResponse(claimed=request.nonce == self.nonce, side_effect=effect)


@pytest.mark.parametrize(
    "lost",
    [
        [_failed(grpc.StatusCode.UNAVAILABLE)],
        [_failed(grpc.StatusCode.DEADLINE_EXCEEDED), _failed(grpc.StatusCode.UNAVAILABLE)],
        [_failed(grpc.StatusCode.CANCELLED)],
        [asyncio.CancelledError()],  # as grpc.aio tells of a lost connection at times
    ],
)
def test_claim_whose_answer_was_lost_is_still_our_own(lost: list[BaseException]) -> None:
    async def main() -> None:
        claims, calls = Claims(lost), len(lost) + 1
        effect = await _journal(ClaimSideEffect=claims.claim).claim_side_effect(CONTEXT, "mail", bytes(range(16)))
        assert effect.claimed
        assert len(claims.requests) == calls
        assert {request.nonce for request in claims.requests} == {bytes(range(16))}

    simulate(main())


def test_claim_of_another_is_not_ours() -> None:
    async def main() -> None:
        claims = Claims([])
        claims.nonce = bytes(16)
        effect = await _journal(ClaimSideEffect=claims.claim).claim_side_effect(CONTEXT, "mail", bytes(range(16)))
        assert not effect.claimed

    simulate(main())


def test_our_own_cancellation_ends_the_repeats() -> None:
    async def main() -> None:
        async def never(request: Any) -> Any:
            await asyncio.Event().wait()

        calling = asyncio.create_task(_journal(ListEvents=never).list_events("run", 0))
        await asyncio.sleep(1)
        calling.cancel()
        await asyncio.wait([calling])
        assert calling.cancelled()

    simulate(main())


def test_refusal_is_not_repeated() -> None:
    async def main() -> None:
        requests: list[Any] = []

        async def refuse(request: Any) -> Any:
            requests.append(request)
            raise _failed(grpc.StatusCode.INTERNAL)

        with pytest.raises(LanternError) as caught:
            await _journal(ListEvents=refuse).list_events("run", 0)
        assert caught.value.reason == reasons.INTERNAL
        assert len(requests) == 1

    simulate(main())
