"""What the shop takes in: every body is checked before anything happens."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

AMOUNT_PENCE_MAX = 100_000_000
QUANTITY_MAX = 10_000
TEXT_LENGTH_MAX = 200
DELAY_SECONDS_MAX = 600.0
BODY_BYTES_MAX = 64 * 1024
OPTIONS = ("standard", "express", "pigeon")


class BadRequest(Exception):
    """A request that says nothing sensible: answered with 400, nothing is done."""

    def __init__(self, field: str, message: str) -> None:
        super().__init__(f"{field}: {message}")
        self.field = field
        self.message = message


@dataclass(frozen=True, kw_only=True, slots=True)
class Reservation:
    """Take goods off the stock."""

    # The order.
    order_id: str
    # What.
    item: str
    # How many.
    quantity: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Charge:
    """Take money from a card."""

    # The order.
    order_id: str
    # Integer pence: money is never a float.
    amount_pence: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Parcel:
    """Send goods."""

    # The order.
    order_id: str
    # The reservation whose goods are sent.
    reservation_id: str
    # One of OPTIONS.
    option: str


def parse_object(raw: bytes) -> dict[str, Any]:
    """The members of a JSON object; raises BadRequest where the body is none."""
    if len(raw) > BODY_BYTES_MAX:
        raise BadRequest("body", f"{len(raw)} bytes are more than the {BODY_BYTES_MAX} allowed")
    try:
        value = json.loads(raw, parse_constant=_refuse)
    except (ValueError, RecursionError) as error:
        raise BadRequest("body", f"no JSON: {error}") from None
    if not isinstance(value, dict):
        raise BadRequest("body", "a JSON object is expected")
    return value


def reservation(body: Mapping[str, Any]) -> Reservation:
    """Checks a reservation; raises BadRequest."""
    return Reservation(
        order_id=text(body, "orderId"),
        item=text(body, "item"),
        quantity=integer(body, "quantity", 1, QUANTITY_MAX),
    )


def charge(body: Mapping[str, Any]) -> Charge:
    """Checks a charge; raises BadRequest."""
    if body.get("currency") != "GBP":
        raise BadRequest("currency", f"{body.get('currency')!r} is not GBP, the only one taken here")
    return Charge(
        order_id=text(body, "orderId"),
        amount_pence=integer(body, "amountPence", 1, AMOUNT_PENCE_MAX),
    )


def parcel(body: Mapping[str, Any]) -> Parcel:
    """Checks a parcel; raises BadRequest."""
    option = text(body, "option")
    if option not in OPTIONS:
        raise BadRequest("option", f"{option!r} is none of {', '.join(OPTIONS)}")
    return Parcel(order_id=text(body, "orderId"), reservation_id=text(body, "reservationId"), option=option)


def text(body: Mapping[str, Any], field: str) -> str:
    """A text of 1 to 200 characters; raises BadRequest."""
    value = body.get(field)
    if not isinstance(value, str) or not 1 <= len(value) <= TEXT_LENGTH_MAX or not value.isprintable():
        raise BadRequest(field, f"a printable text of 1 to {TEXT_LENGTH_MAX} characters is expected")
    return value


def integer(body: Mapping[str, Any], field: str, least: int, most: int) -> int:
    """A whole number within bounds; raises BadRequest. True and 1.0 are no whole numbers."""
    value = body.get(field)
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
        raise BadRequest(field, f"a whole number from {least} to {most} is expected")
    return value


def seconds(body: Mapping[str, Any], field: str) -> float:
    """A time of 0 to 600 seconds, 0 where absent; raises BadRequest."""
    value = body.get(field, 0)
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 <= value <= DELAY_SECONDS_MAX:
        raise BadRequest(field, f"a number of seconds from 0 to {DELAY_SECONDS_MAX:.0f} is expected")
    return float(value)


def _refuse(name: str) -> Any:
    raise ValueError(f"{name} is no JSON value")
