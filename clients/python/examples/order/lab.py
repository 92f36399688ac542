"""The workflow `order-lab`: the order of workflow.py with two safeguards that can be switched off, to see what they do.

Input: as of `order`, and besides:
    useMarker: False reads the clock in the workflow's own code instead of recording what was read. True where absent.

Without the marker the code forgets what it chose: driven again, it chooses anew, and asks for another step than the one
that is on record. Lantern notices at that step, names both lines, and lets the run wait for mended code (SPEC R3, R4).
"""

from collections.abc import Awaitable, Callable
from typing import Any

import lantern
from order.workflow import (
    CHARGE_TIMEOUT_S,
    PRICE_PENCE,
    RETRY,
    STEP_TIMEOUT_S,
    choose_option,
    send_receipt,
)

Choice = Callable[[lantern.Context, dict[str, Any]], Awaitable[str]]


# Not guarded: what comes of reading the clock is what the lab shows.
@lantern.workflow(name="order-lab", guarded=False)
async def order_lab(ctx: lantern.Context, order: dict[str, Any]) -> dict[str, Any]:
    """The five steps of an order, with or without its key and its marker."""
    return await place(ctx, order, choose)


async def choose(ctx: lantern.Context, order: dict[str, Any]) -> str:
    """A shipping option by the clock: recorded, or with `useMarker` false forgotten."""
    if order.get("useMarker", True):
        return await ctx.side_effect("option", choose_option)
    return choose_option()


async def place(ctx: lantern.Context, order: dict[str, Any], choice: Choice) -> dict[str, Any]:
    """Reserves stock, charges the card GBP 40, chooses a shipping option, ships, and sends a receipt by mail."""
    shop, order_id = order["shop"], order["orderId"]
    reservation = await ctx.http(
        "reserve",
        "POST",
        f"{shop}/stock/reservations",
        json={"orderId": order_id, "item": "lantern", "quantity": 1},
        timeout_s=STEP_TIMEOUT_S,
        retry=RETRY,
    )
    charge = await ctx.http(
        "charge",
        "POST",
        f"{shop}/charges",
        json={"orderId": order_id, "amountPence": PRICE_PENCE, "currency": "GBP"},
        keyed=order.get("useKey", True),
        key_scope="workflow",
        timeout_s=CHARGE_TIMEOUT_S,
        retry=RETRY,
    )
    option = await choice(ctx, order)
    url = f"{shop}/parcels"
    body = {"orderId": order_id, "reservationId": reservation.body["reservationId"], "option": option}
    # Each option has a step of its own, as a branch of real work would.
    if option == "express":
        parcel = await ctx.http("ship-express", "POST", url, json=body, timeout_s=STEP_TIMEOUT_S, retry=RETRY)
    elif option == "pigeon":
        parcel = await ctx.http("ship-pigeon", "POST", url, json=body, timeout_s=STEP_TIMEOUT_S, retry=RETRY)
    else:
        parcel = await ctx.http("ship-standard", "POST", url, json=body, timeout_s=STEP_TIMEOUT_S, retry=RETRY)
    mail = await ctx.step(
        "mail",
        send_receipt,
        order["smtp"],
        order_id,
        charge.body["chargeId"],
        claim="retry",
        sink="mail",
        timeout_s=STEP_TIMEOUT_S,
        retry=RETRY,
    )
    return {"charge": charge.body, "option": option, "parcel": parcel.body, "mail": mail}
