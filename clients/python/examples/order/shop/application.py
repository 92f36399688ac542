"""What the shop does with a request: look whether it was answered before, act, remember, log; then only, reply.

The rule that makes a repeat harmless is the first lines of `Shop._decide`: a used key gets the first answer again,
whether that was a success or a refusal, and nothing happens a second time. Without a key nobody can tell a repeat from
a second order, so the shop acts again.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from email.message import EmailMessage
from hashlib import sha256
from typing import Any

from order.shop import validate
from order.shop.faults import FaultBook
from order.shop.ledger import Ledger, RecordedAnswer, RequestEntry
from order.shop.validate import BadRequest

ACTED, DEDUPLICATED, REFUSED, INVALID = "acted", "deduplicated", "refused", "invalid"
KEY_LENGTH_MAX = 200
SMTP_OK, SMTP_REFUSED = 250, 550


@dataclass(frozen=True, kw_only=True, slots=True)
class Caller:
    """What a caller says of itself, for the request log."""

    # The run; empty where it does not say.
    run_id: str = ""
    # The step.
    step_id: str = ""
    # The attempt at that step.
    attempt: str = ""
    # The epoch of the lease under which it calls.
    epoch: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Call:
    """A POST to the shop."""

    # Where to.
    path: str
    # Idempotency-Key; None where there is none.
    key: str | None
    # As it came.
    body: bytes
    # Who calls.
    caller: Caller = Caller()


@dataclass(frozen=True, kw_only=True, slots=True)
class Answer:
    """What the shop replies."""

    # HTTP status.
    status: int
    # The members of the JSON reply.
    reply: Mapping[str, Any]
    # acted, deduplicated, refused or invalid.
    outcome: str
    # How long the caller asked the reply to take, for load tests.
    delay_s: float = 0.0


class Shop:
    """All that the shop can do; `now_us` is its clock, microseconds since the Unix epoch."""

    def __init__(self, ledger: Ledger, faults: FaultBook, now_us: Callable[[], int]) -> None:
        self._ledger = ledger
        self._faults = faults
        self._now_us = now_us
        self._actions: dict[str, Callable[[Mapping[str, Any]], Answer]] = {
            "/stock/reservations": self._reserve,
            "/charges": self._charge,
            "/parcels": self._ship,
        }

    @property
    def paths(self) -> tuple[str, ...]:
        """Where a call can go."""
        return tuple(self._actions)

    def answer(self, call: Call) -> Answer:
        """Does what the call asks and commits it, with its answer and its log entry, before it returns."""
        with self._ledger.transaction():
            order_id = ""
            try:
                body = validate.parse_object(call.body)
                order_id = validate.text(body, "orderId")
                delay_s = validate.seconds(body, "delaySeconds")
                answer = self._decide(call, body)
            except BadRequest as error:
                answer, delay_s = _bad(error), 0.0
            self._log(
                call.path, (call.key or "")[:KEY_LENGTH_MAX], order_id, call.caller, answer.outcome, answer.status
            )
        # What was answered before is answered at once: a repeat costs the shop nothing.
        late_s = delay_s if answer.outcome == ACTED else 0.0
        return Answer(status=answer.status, reply=answer.reply, outcome=answer.outcome, delay_s=late_s)

    def take_mail(self, message: EmailMessage, recipient: str, caller: Caller) -> tuple[int, str]:
        """Puts a mail into the mailbox, once per Message-ID; the SMTP code and text to answer."""
        message_id, order_id = str(message.get("Message-ID", "")).strip(), str(message.get("X-Order-Id", "")).strip()
        with self._ledger.transaction():
            if not message_id or len(message_id) > KEY_LENGTH_MAX:
                status, text, outcome = SMTP_REFUSED, "a mail needs a Message-ID", INVALID
            elif self._ledger.keep_mail(
                order_id, message_id, recipient, str(message.get("Subject", "")), self._now_us()
            ):
                status, text, outcome = SMTP_OK, "taken", ACTED
            else:
                status, text, outcome = SMTP_OK, "taken before", DEDUPLICATED
            self._log("/mail", message_id[:KEY_LENGTH_MAX], order_id, caller, outcome, status)
        return status, text

    def _decide(self, call: Call, body: Mapping[str, Any]) -> Answer:
        key, digest = call.key, sha256(call.body).digest()
        if key is not None:
            if not 1 <= len(key) <= KEY_LENGTH_MAX:
                raise BadRequest("Idempotency-Key", f"1 to {KEY_LENGTH_MAX} characters are expected")
            known = self._ledger.find_answer(call.path, key)
            if known is not None and known.body_digest != digest:
                return _refusal(422, "key_reused", "this idempotency key came with another body before")
            if known is not None:
                return Answer(status=known.status, reply=known.reply, outcome=DEDUPLICATED)
        # Checked first: what could never act spends no ordered refusal and leaves no answer under its key.
        _CHECKS[call.path](body)
        ordered = self._faults.take_refusal(call.path)
        if ordered is not None:
            answer = _refusal(ordered.status, "refused", "refused, as a fault was ordered")
        else:
            answer = self._actions[call.path](body)
        if key is not None:
            known = RecordedAnswer(body_digest=digest, status=answer.status, reply=answer.reply)
            self._ledger.keep_answer(call.path, key, known)
        return answer

    def _reserve(self, body: Mapping[str, Any]) -> Answer:
        wanted = validate.reservation(body)
        number = self._ledger.reserve(wanted, self._now_us())
        if number is None:
            return _refusal(422, "out_of_stock", f"not enough of {wanted.item}")
        reply = {"reservationId": f"res-{number}", "item": wanted.item, "quantity": wanted.quantity}
        return Answer(status=201, reply=reply, outcome=ACTED)

    def _charge(self, body: Mapping[str, Any]) -> Answer:
        wanted = validate.charge(body)
        number = self._ledger.charge(wanted, self._now_us())
        reply = {"chargeId": f"ch-{number}", "amountPence": wanted.amount_pence, "currency": "GBP"}
        return Answer(status=201, reply=reply, outcome=ACTED)

    def _ship(self, body: Mapping[str, Any]) -> Answer:
        wanted = validate.parcel(body)
        number = self._ledger.ship(wanted, self._now_us())
        return Answer(status=201, reply={"parcelId": f"par-{number}", "option": wanted.option}, outcome=ACTED)

    def _log(self, path: str, key: str, order_id: str, caller: Caller, outcome: str, status: int) -> None:
        self._ledger.log_request(
            RequestEntry(
                time_us=self._now_us(),
                path=path,
                key=key,
                order_id=order_id,
                run_id=caller.run_id,
                step_id=caller.step_id,
                attempt=caller.attempt,
                epoch=caller.epoch,
                outcome=outcome,
                status=status,
            )
        )


_CHECKS: dict[str, Callable[[Mapping[str, Any]], object]] = {
    "/stock/reservations": validate.reservation,
    "/charges": validate.charge,
    "/parcels": validate.parcel,
}


def _bad(error: BadRequest) -> Answer:
    reply = {"error": {"code": "bad_request", "field": error.field, "message": error.message}}
    return Answer(status=400, reply=reply, outcome=INVALID)


def _refusal(status: int, code: str, message: str) -> Answer:
    return Answer(status=status, reply={"error": {"code": code, "message": message}}, outcome=REFUSED)
