"""The workflow `order`: five steps, each with an effect in the outside world, and one choice that nobody could repeat.

Input:
    orderId: The order, as the shop knows it.
    shop: Where the shop's HTTP listens, `http://host:port`.
    smtp: Where its mail server listens, `host:port`.
    item, quantity: What is bought; one lantern where absent.
    useKey: False sends no idempotency key with the charge, to show what keys are for. True where absent.
    delays: Seconds that the shop takes to reply, by step (`reserve`, `charge`, `ship`), for load tests.
"""

import smtplib
import time
from email.message import EmailMessage
from typing import Any

import lantern

PRICE_PENCE = 4000
CHARGE_TIMEOUT_S = 2.0
STEP_TIMEOUT_S = 10.0
OPTIONS = ("standard", "express", "pigeon")
RETRY = lantern.RetryPolicy(max_attempts=3, backoff_ms=100)


@lantern.workflow(name="order")
async def order(ctx: lantern.Context, order: dict[str, Any]) -> dict[str, Any]:
    """Reserves stock, charges the card GBP 40, chooses a shipping option, ships, and sends a receipt by mail."""
    shop, order_id, delays = order["shop"], order["orderId"], order.get("delays", {})

    reservation = await ctx.http(
        "reserve",
        "POST",
        f"{shop}/stock/reservations",
        json={
            "orderId": order_id,
            "item": order.get("item", "lantern"),
            "quantity": order.get("quantity", 1),
            "delaySeconds": delays.get("reserve", 0),
        },
        timeout_s=STEP_TIMEOUT_S,
        retry=RETRY,
    )
    charge = await ctx.http(
        "charge",
        "POST",
        f"{shop}/charges",
        json={
            "orderId": order_id,
            "amountPence": PRICE_PENCE,
            "currency": "GBP",
            "delaySeconds": delays.get("charge", 0),
        },
        keyed=order.get("useKey", True),
        # The key is made of the workflow id (the order's own name), so that an order which is started twice is charged
        # once. The other steps' keys are made of the run id.
        key_scope="workflow",
        timeout_s=CHARGE_TIMEOUT_S,
        retry=RETRY,
    )
    option = await ctx.side_effect("option", choose_option)
    parcel = await ctx.http(
        "ship",
        "POST",
        f"{shop}/parcels",
        json={
            "orderId": order_id,
            "reservationId": reservation.body["reservationId"],
            "option": option,
            "delaySeconds": delays.get("ship", 0),
        },
        timeout_s=STEP_TIMEOUT_S,
        retry=RETRY,
    )
    mail = await ctx.step(
        "mail",
        send_receipt,
        order["smtp"],
        order_id,
        charge.body["chargeId"],
        # The mail server takes a Message-ID once: trying again is harmless, so an unknown outcome is tried again.
        claim="retry",
        sink="mail",
        timeout_s=STEP_TIMEOUT_S,
        retry=RETRY,
    )
    return {
        "reservation": reservation.body,
        "charge": charge.body,
        "option": option,
        "parcel": parcel.body,
        "mail": mail,
    }


def choose_option() -> str:
    """Reads the clock: another call would hardly choose the same, which is why the choice is recorded."""
    return OPTIONS[time.time_ns() // 1000 % len(OPTIONS)]


def send_receipt(smtp: str, order_id: str, charge_id: str) -> dict[str, str]:
    """Sends the receipt; its Message-ID is made of the step's key, so every try is the same mail."""
    step = lantern.step_info()
    message = EmailMessage()
    message["Message-ID"] = f"<{step.key}@lantern>"
    message["From"], message["To"] = "shop@example.org", "customer@example.org"
    message["Subject"] = f"Your order {order_id}"
    message["X-Order-Id"] = order_id
    message["Lantern-Run-Id"], message["Lantern-Step-Id"] = step.run_id, step.step_id
    message["Lantern-Attempt"], message["Lantern-Epoch"] = str(step.attempt), str(step.epoch)
    message.set_content(f"We took GBP {PRICE_PENCE // 100}.{PRICE_PENCE % 100:02} ({charge_id}). Thank you!")
    host, _, port = smtp.rpartition(":")
    with smtplib.SMTP(host, int(port), timeout=STEP_TIMEOUT_S) as server:
        server.send_message(message)
    return {"messageId": message["Message-ID"], "to": message["To"]}
