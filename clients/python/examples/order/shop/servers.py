"""The shop's doors: HTTP for stock, charges and parcels, SMTP for mail, and the orders for faults."""

import asyncio
from email import message_from_bytes, policy
from typing import Any

from aiohttp import web
from aiosmtpd.smtp import SMTP, Envelope, Session

from order.shop import faults, validate
from order.shop.application import KEY_LENGTH_MAX, Call, Caller, Shop
from order.shop.faults import FaultBook
from order.shop.ledger import Ledger
from order.shop.validate import BadRequest

MAIL_PATH = "/mail"
MAIL_BYTES_MAX = 1024 * 1024


class Gate:
    """Where a request suffers the fault that was ordered for it."""

    def __init__(self, book: FaultBook) -> None:
        self._book = book
        self._released = asyncio.Event()
        self.held = 0

    def order(self, fault: faults.Fault) -> None:
        """Takes an order for a fault in."""
        self._book.add(fault)

    def release(self) -> int:
        """Lets every held reply go and forgets the faults that have not happened yet; how many replies were held."""
        self._book.clear()
        self._released.set()
        self._released = asyncio.Event()
        return self.held

    async def passes(self, path: str, when: str) -> bool:
        """Waits as long as the fault says; False where the connection is to be closed without a reply."""
        fault = self._book.take(path, when)
        if fault is None:
            return True
        if fault.action == "delay":
            await asyncio.sleep(fault.seconds)
        elif fault.action == "hold":
            self.held += 1
            try:
                await self._released.wait()
            finally:
                self.held -= 1
        return fault.action != "drop"


class HttpDoor:
    """The routes over the shop."""

    def __init__(self, shop: Shop, ledger: Ledger, gate: Gate) -> None:
        self._shop = shop
        self._ledger = ledger
        self._gate = gate

    def application(self) -> web.Application:
        """What aiohttp serves."""
        app = web.Application(client_max_size=validate.BODY_BYTES_MAX * 2)
        app.add_routes([web.post(path, self._call) for path in self._shop.paths])
        app.add_routes(
            [
                web.get("/ledger", self._show_ledger),
                web.get("/requests", self._list_requests),
                web.get("/faults", self._show_faults),
                web.post("/faults", self._order_fault),
                web.post("/faults/release", self._release),
            ]
        )
        return app

    async def _call(self, request: web.Request) -> web.StreamResponse:
        call = Call(
            path=request.path,
            key=request.headers.get("Idempotency-Key"),
            body=await request.read(),
            caller=_caller(request.headers),
        )
        if not await self._gate.passes(call.path, "before"):
            return _hang_up(request)
        answer = self._shop.answer(call)
        if answer.delay_s:
            await asyncio.sleep(answer.delay_s)
        if not await self._gate.passes(call.path, "after"):
            return _hang_up(request)
        repeated = {"Idempotent-Replayed": "true"} if answer.outcome == "deduplicated" else None
        return web.json_response(answer.reply, status=answer.status, headers=repeated)

    async def _show_ledger(self, request: web.Request) -> web.Response:
        return web.json_response(self._ledger.show(request.query.get("orderId", "")))

    async def _list_requests(self, request: web.Request) -> web.Response:
        after = request.query.get("after", "0")
        if not after.isdecimal() or len(after) > len(str(2**62)):
            return _bad(BadRequest("after", f"{after[:40]!r} is no number of an entry"))
        found = self._ledger.list_requests(request.query.get("orderId", ""), int(after))
        return web.json_response({"requests": found})

    async def _show_faults(self, _: web.Request) -> web.Response:
        return web.json_response({"held": self._gate.held})

    async def _order_fault(self, request: web.Request) -> web.Response:
        try:
            fault = faults.parse(validate.parse_object(await request.read()))
        except BadRequest as error:
            return _bad(error)
        self._gate.order(fault)
        return web.json_response({}, status=201)

    async def _release(self, _: web.Request) -> web.Response:
        return web.json_response({"released": self._gate.release()})


class MailDoor:
    """What aiosmtpd hands each mail to."""

    def __init__(self, shop: Shop, gate: Gate) -> None:
        self._shop = shop
        self._gate = gate

    async def handle_DATA(self, server: SMTP, _: Session, envelope: Envelope) -> str:  # noqa: N802 - aiosmtpd's name
        """Takes one mail and says what became of it."""
        content = envelope.content or b""
        raw = content.encode() if isinstance(content, str) else content
        message = message_from_bytes(raw, policy=policy.default)
        if await self._gate.passes(MAIL_PATH, "before"):
            code, text = self._shop.take_mail(message, ", ".join(envelope.rcpt_tos), _caller(message))
            if await self._gate.passes(MAIL_PATH, "after"):
                return f"{code} {text}"
        if isinstance(server.transport, asyncio.Transport):
            server.transport.abort()
        return "421 closing"


class Servers:
    """Both doors open, until `close`."""

    def __init__(self, shop: Shop, ledger: Ledger, book: FaultBook) -> None:
        self._gate = Gate(book)
        self._runner = web.AppRunner(HttpDoor(shop, ledger, self._gate).application(), access_log=None)
        self._mail_door = MailDoor(shop, self._gate)
        self._mail: asyncio.Server | None = None

    async def open(self, host: str, port: int, smtp_port: int) -> tuple[str, str]:
        """Listens; port 0 picks one. The addresses of HTTP and SMTP, `host:port`."""
        await self._runner.setup()
        await web.TCPSite(self._runner, host, port).start()
        loop = asyncio.get_running_loop()
        self._mail = await loop.create_server(self._mail_session, host, smtp_port)
        http_port: int = self._runner.addresses[0][1]
        mail_port: int = self._mail.sockets[0].getsockname()[1]
        return f"{host}:{http_port}", f"{host}:{mail_port}"

    async def close(self) -> None:
        """Lets go what is held and stops listening."""
        self._gate.release()
        if self._mail is not None:
            self._mail.close()
        await self._runner.cleanup()

    def _mail_session(self) -> SMTP:
        return SMTP(self._mail_door, data_size_limit=MAIL_BYTES_MAX, hostname="shop", ident="shop")


def _caller(headers: Any) -> Caller:
    """What HTTP or mail headers say of the caller; both mappings ignore case."""
    named = [
        str(headers.get(f"Lantern-{name}", ""))[:KEY_LENGTH_MAX] for name in ("Run-Id", "Step-Id", "Attempt", "Epoch")
    ]
    return Caller(run_id=named[0], step_id=named[1], attempt=named[2], epoch=named[3])


def _hang_up(request: web.Request) -> web.Response:
    """Closes the connection at once: the caller sees a reset, never a reply."""
    if request.transport is not None:
        request.transport.abort()
    return web.Response()


def _bad(error: BadRequest) -> web.Response:
    reply = {"error": {"code": "bad_request", "field": error.field, "message": error.message}}
    return web.json_response(reply, status=400)
