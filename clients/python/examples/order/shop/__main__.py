"""`python -m order.shop --dir DIR`: opens the shop and prints where it listens, one line of JSON, when it is ready."""

import argparse
import asyncio
import json
import os
import signal
import time
from pathlib import Path

from order.shop.application import Shop
from order.shop.faults import FaultBook
from order.shop.ledger import Ledger
from order.shop.servers import Servers

WATCH_PARENT_S = 0.5


async def serve(folder: Path, port: int, smtp_port: int, parent: int | None) -> None:
    """Serves until SIGTERM or SIGINT, or until the process `parent` is gone."""
    ledger, book = Ledger(folder / "shop.db"), FaultBook()
    servers = Servers(Shop(ledger, book, lambda: time.time_ns() // 1000), ledger, book)
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    try:
        http, smtp = await servers.open("127.0.0.1", port, smtp_port)
        print(json.dumps({"http": f"http://{http}", "smtp": smtp, "pid": os.getpid()}), flush=True)
        while not stop.is_set() and (parent is None or os.getppid() == parent):
            try:
                async with asyncio.timeout(WATCH_PARENT_S):
                    await stop.wait()
            except TimeoutError:
                continue
    finally:
        await servers.close()
        ledger.close()


def main() -> None:
    """Reads the command line and serves."""
    parser = argparse.ArgumentParser(prog="order.shop", description="The world outside of the order example.")
    parser.add_argument("--dir", type=Path, required=True, help="where its database is kept")
    parser.add_argument("--port", type=int, default=0, help="of HTTP; 0 picks one")
    parser.add_argument("--smtp-port", type=int, default=0, help="of SMTP; 0 picks one")
    parser.add_argument("--exit-with-parent", type=int, default=None, metavar="PID", help="end when this process ends")
    arguments = parser.parse_args()
    arguments.dir.mkdir(parents=True, exist_ok=True)
    asyncio.run(serve(arguments.dir, arguments.port, arguments.smtp_port, arguments.exit_with_parent))


if __name__ == "__main__":
    main()
