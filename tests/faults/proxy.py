"""A TCP connection that can stop forwarding without breaking, as a network that is cut does: nobody is told of it."""

import socket
import threading
from typing import Self

READ_BYTES = 65_536
CONNECT_S = 5.0


class Proxy:
    """Forwards to an address while it is open; what comes in while it is cut arrives, late, when it is mended."""

    def __init__(self, target: str) -> None:
        host, _, port = target.rpartition(":")
        self._target = (host, int(port))
        self._open = threading.Event()
        self._open.set()
        self._sockets: list[socket.socket] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"

    def __enter__(self) -> Self:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._open.set()
        self._listener.close()
        for each in self._sockets:
            each.close()

    def cut(self) -> None:
        """Nothing passes any more, in either direction; connections are still accepted."""
        self._open.clear()

    def mend(self) -> None:
        """Everything passes, also what was held back."""
        self._open.set()

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._listener.accept()
                far = socket.create_connection(self._target, CONNECT_S)
            except OSError:
                return
            far.settimeout(None)
            self._sockets += [near, far]
            for source, sink in ((near, far), (far, near)):
                threading.Thread(target=self._pump, args=(source, sink), daemon=True).start()

    def _pump(self, source: socket.socket, sink: socket.socket) -> None:
        try:
            while data := source.recv(READ_BYTES):
                self._open.wait()
                sink.sendall(data)
        except OSError:
            pass
        for each in (source, sink):
            try:
                each.shutdown(socket.SHUT_RDWR)
            except OSError:
                continue  # closed already
