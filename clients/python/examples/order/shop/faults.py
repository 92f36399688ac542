"""Faults on order: which reply gets late or lost, how often, and whether before or after the shop has acted."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from order.shop import validate
from order.shop.validate import BadRequest

PATHS = ("/stock/reservations", "/charges", "/parcels", "/mail")
ACTIONS = ("delay", "drop", "hold", "refuse")
WHEN = ("before", "after")
REFUSALS = (402, 409, 429, 503)
COUNT_MAX = 1_000_000


@dataclass(frozen=True, kw_only=True, slots=True)
class Fault:
    """What goes wrong, and for how many requests."""

    # One of PATHS.
    path: str
    # delay: reply later. drop: close the connection without a reply. hold: reply when released. refuse: answer with
    # `status` instead of acting, and remember that answer under the request's key.
    action: str
    # before: the shop has done nothing yet. after: it has acted, and the reply is what suffers.
    when: str
    # For delay.
    seconds: float
    # For refuse; else 0.
    status: int
    # How many requests are left to suffer.
    count: int


def parse(body: Mapping[str, Any]) -> Fault:
    """Reads what POST /faults was sent; raises BadRequest."""
    action = _choice(body, "action", ACTIONS, "")
    status = body.get("status", 402 if action == "refuse" else 0)
    if action == "refuse" and status not in REFUSALS:
        raise BadRequest("status", f"{status!r} is none of {', '.join(map(str, REFUSALS))}")
    return Fault(
        path=_choice(body, "path", PATHS, ""),
        action=action,
        when="before" if action == "refuse" else _choice(body, "when", WHEN, "after"),
        seconds=validate.seconds(body, "seconds"),
        status=status if action == "refuse" else 0,
        count=validate.integer({"count": 1, **body}, "count", 1, COUNT_MAX),
    )


class FaultBook:
    """The faults that are still to happen, in the order in which they were asked for."""

    def __init__(self) -> None:
        self._faults: list[Fault] = []

    def add(self, fault: Fault) -> None:
        """Takes a fault in."""
        self._faults.append(fault)

    def clear(self) -> None:
        """Forgets all of them."""
        self._faults.clear()

    def take(self, path: str, when: str) -> Fault | None:
        """The fault that this request suffers at this point, other than a refusal; None where it suffers none."""
        return self._take(lambda fault: fault.path == path and fault.when == when and fault.action != "refuse")

    def take_refusal(self, path: str) -> Fault | None:
        """The refusal that a request which would otherwise act meets; None where there is none."""
        return self._take(lambda fault: fault.path == path and fault.action == "refuse")

    def _take(self, matches: Callable[[Fault], bool]) -> Fault | None:
        for index, fault in enumerate(self._faults):
            if matches(fault):
                if fault.count > 1:
                    self._faults[index] = replace(fault, count=fault.count - 1)
                else:
                    del self._faults[index]
                return fault
        return None


def _choice(body: Mapping[str, Any], field: str, allowed: tuple[str, ...], default: str) -> str:
    value = body.get(field, default)
    if value not in allowed:
        raise BadRequest(field, f"{value!r} is none of {', '.join(allowed)}")
    return value
