"""A workflow that waits for one reply as long as a test needs it to."""

from typing import Any

import lantern

PATIENCE_S = 120.0


@lantern.workflow(name="patient")
async def patient(ctx: lantern.Context, order: dict[str, Any]) -> Any:
    """Charges GBP 1 and returns what the shop replied."""
    body = {"orderId": order["orderId"], "amountPence": 100, "currency": "GBP"}
    reply = await ctx.http("charge", "POST", f"{order['shop']}/charges", json=body, timeout_s=PATIENCE_S)
    return reply.body
