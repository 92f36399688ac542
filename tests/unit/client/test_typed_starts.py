"""Goal: a run can be started by its workflow function with a dataclass, and its result read as one.

Method: a client whose calls are answered by the test; no channel is opened.
"""

from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import pytest

import lantern
from lantern.api.journal.v1 import journal_service_pb2 as journal_pb
from lantern.api.journal.v1 import run_pb2 as pb
from lantern_kernel.errors import InvalidField


@dataclass(frozen=True)
class Price:
    """What is paid."""

    amount: Decimal


@lantern.workflow(name="pay-typed")
async def pay(ctx: lantern.Context, price: Price) -> Price:
    del ctx
    return price


async def unmarked(ctx: lantern.Context) -> None:
    del ctx


async def test_a_workflow_function_stands_for_its_agent(monkeypatch: pytest.MonkeyPatch):
    asked: list[journal_pb.CreateRunRequest] = []

    async def answer(method: Any, request: Any, address: str = "") -> Any:
        del method, address
        if isinstance(request, journal_pb.CreateRunRequest):
            asked.append(request)
        run = pb.Run(run_id="r", state=pb.Run.STATE_SUCCEEDED, result=b'{"amount":"1.50"}')
        return journal_pb.CreateRunResponse(run=run)

    async with lantern.Client(journal="127.0.0.1:1") as client:

        async def wait(run_id: str) -> lantern.Run:
            assert run_id == "r"
            return await client.start("x")

        monkeypatch.setattr(client, "_call", answer)
        monkeypatch.setattr(client, "wait", wait)
        await client.start(pay, Price(Decimal("1.5")))
        assert (asked[0].agent_name, asked[0].input) == ("pay-typed", b'{"amount":"1.5"}')
        assert await client.result("r") == {"amount": "1.50"}
        for into in (pay, Price, Price | None):
            assert await client.result("r", into=into) == Price(Decimal("1.50"))
        with pytest.raises(InvalidField, match="result: is a object, not a list"):
            await client.result("r", into=list[Price])
        with pytest.raises(InvalidField, match=r"mark it with @lantern\.workflow"):
            await client.start(unmarked)
