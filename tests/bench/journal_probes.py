"""Single operations of a journal, timed one after the other on several journals in turn: empty, and with a past.

For each journal: what `lantern runs show` asks (GetRun and ListEvents), the orphan query, and one append alone. The run
that is shown has 20 steps; 30 runs wait for a driver on each journal.
"""

import argparse
import contextlib
import json
import statistics
import sys
import time
import uuid
from collections.abc import Awaitable, Callable

import uvloop
from journal_load import AGENT, Load

from lantern.api.journal.v1 import journal_service_pb2 as journal_pb
from lantern.api.journal.v1 import journal_service_pb2_grpc, recovery_service_pb2_grpc
from lantern.api.journal.v1 import recovery_service_pb2 as recovery_pb
from lantern_serving import channels

ORPHANS = 30
TIMES = {"get_and_list": 60, "find_orphans": 60, "append": 200}


class Probe:
    """One journal's operations."""

    def __init__(self, address: str) -> None:
        self._address = address
        self._load = Load(address, 200, is_whole=False)
        channel = channels.connect(address)
        self._journal = journal_service_pb2_grpc.JournalServiceStub(channel)
        self._recovery = recovery_service_pb2_grpc.JournalRecoveryServiceStub(channel)
        self._channel = channel
        # The run to be shown.
        self.run_id = ""

    async def start(self) -> None:
        """Makes the run to be shown, and those that nobody drives."""
        await self._load.start()
        self.run_id = await self._load.drive_one()
        for _ in range(ORPHANS):
            await self._journal.CreateRun(journal_pb.CreateRunRequest(request_id=uuid.uuid4().hex, agent_name=AGENT))

    async def close(self) -> None:
        """Leaves."""
        await self._load.close()
        await self._channel.close()

    def operations(self) -> dict[str, Callable[[], Awaitable[object]]]:
        """What is timed."""
        return {
            "get_and_list": self._get_and_list,
            "find_orphans": self._find_orphans,
            "append": self._load.append_once,
        }

    async def _get_and_list(self) -> None:
        await self._journal.GetRun(journal_pb.GetRunRequest(run_id=self.run_id))
        await self._journal.ListEvents(journal_pb.ListEventsRequest(run_id=self.run_id))

    async def _find_orphans(self) -> None:
        found = await self._recovery.FindOrphans(recovery_pb.FindOrphansRequest(page_size=20))
        assert len(found.orphans) == 20, "there are orphans enough"


async def measure(addresses: list[str]) -> list[dict[str, object]]:
    """Times each operation on the journals in turn: median and 90th percentile in ms."""
    async with contextlib.AsyncExitStack() as stack:
        probes = [Probe(address) for address in addresses]
        for probe in probes:
            await probe.start()
            stack.push_async_callback(probe.close)
        found: list[dict[str, object]] = [{"run_id": each.run_id} for each in probes]
        for name, times in TIMES.items():
            took_ms: list[list[float]] = [[] for _ in probes]
            for number in range(times):
                for at in range(len(probes)):
                    index = (at + number) % len(probes)  # none is always the first
                    began = time.perf_counter()
                    await probes[index].operations()[name]()
                    took_ms[index].append((time.perf_counter() - began) * 1000)
            for result, each in zip(found, took_ms, strict=True):
                median, p90 = statistics.median(each), sorted(each)[len(each) * 9 // 10]
                result[name] = {"median_ms": round(median, 3), "p90_ms": round(p90, 3)}
        return found


def main() -> None:
    """Prints one line of JSON: a list, in the order of the journals."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("journals", nargs="+", help="host:port")
    sys.stdout.write(json.dumps(uvloop.run(measure(parser.parse_args().journals))) + "\n")


if __name__ == "__main__":
    main()
