"""An HTTP proxy in front of the shop that does to charges what it was told, one request after the other.

Others stand between a caller and a service, too: load balancers, gateways. What these answer was never seen by the
service, and the service's idempotency keys know nothing of it.
"""

import threading
import urllib.error
import urllib.request
from collections import deque
from collections.abc import Iterable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self

PASS, LOSE, BUSY = "pass", "lose", "busy"
"""Forward it; forward it and close the connection without the reply; answer 429 without forwarding it."""

FORWARD_TIMEOUT_S = 10.0
CHARGES = "/charges"


class FrontProxy:
    """Listens while it is entered; `behind` is the shop's address, `http://host:port`."""

    def __init__(self, behind: str) -> None:
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self, behind))
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._orders: deque[str] = deque()
        self._lock = threading.Lock()
        self.keys: list[str] = []
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def order(self, actions: Iterable[str]) -> None:
        """What is done to the next charges; later ones pass. Forgets what was noted before."""
        with self._lock:
            self._orders, self.keys = deque(actions), []

    def take(self, path: str, key: str) -> str:
        """Notes a request, and says what is done to it."""
        if path != CHARGES:
            return PASS
        with self._lock:
            self.keys.append(key)
            return self._orders.popleft() if self._orders else PASS


def _handler(proxy: FrontProxy, behind: str) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            action = proxy.take(self.path, self.headers.get("Idempotency-Key", ""))
            if action == BUSY:
                self._answer(429, b'{"error":"too many requests"}')
                return
            status, reply = _forward(behind + self.path, body, dict(self.headers.items()))
            if action == LOSE:
                self.close_connection = True
                return
            self._answer(status, reply)

        def _answer(self, status: int, reply: bytes) -> None:
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(reply)))
            self.end_headers()
            self.wfile.write(reply)

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - http.server's name
            """Says nothing."""

    return Handler


def _forward(url: str, body: bytes, headers: dict[str, str]) -> tuple[int, bytes]:
    kept = {name: value for name, value in headers.items() if name.lower() not in {"host", "content-length"}}
    try:
        with urllib.request.urlopen(urllib.request.Request(url, body, kept), timeout=FORWARD_TIMEOUT_S) as reply:
            return reply.status, reply.read()
    except urllib.error.HTTPError as error:
        return error.code, error.read()
