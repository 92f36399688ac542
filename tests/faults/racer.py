"""One of many processes that race for leases: `python racer.py HOST:PORT NAME`.

It attaches a session of its own, says that it is ready, and then, for every line of run ids on standard input, asks for
all of their leases at once; it answers with one line: the epochs that it was granted, by run.
"""

import asyncio
import json
import sys

from load import AGENT, DIGEST

from lantern.api.journal.v1 import journal_service_pb2 as journal_pb
from lantern.api.journal.v1 import recovery_service_pb2 as recovery_pb
from lantern.api.journal.v1 import recovery_service_pb2_grpc as recovery_grpc
from lantern_executor.adapters.addresses import JournalAddresses
from lantern_executor.adapters.session import Session, WorkerIdentity
from lantern_executor.domain.run import Offer
from lantern_serving import channels

RPC_S = 30.0


async def main() -> None:
    """Races until its input ends."""
    address, name = sys.argv[1:3]
    offer = Offer(name=AGENT, digest=DIGEST, program_kind="code")
    session = Session(JournalAddresses([address]), WorkerIdentity(worker_id=name, capacity=10_000, offers=[offer]))
    session.start("127.0.0.1:1")
    await session.wait_attached()
    channel = channels.connect(address)
    stub = recovery_grpc.JournalRecoveryServiceStub(channel)

    async def acquire(run_id: str) -> tuple[str, int]:
        target = journal_pb.LeaseTarget(worker_id=name, session_number=session.number)
        request = recovery_pb.AcquireLeaseRequest(run_id=run_id, lease_target=target, reason="crash")
        answer = await stub.AcquireLease(request, timeout=RPC_S)
        return run_id, answer.epoch if answer.acquired else 0

    print(json.dumps({"ready": name}), flush=True)
    loop = asyncio.get_running_loop()
    while line := await loop.run_in_executor(None, sys.stdin.readline):
        outcomes = await asyncio.gather(*map(acquire, line.split()))
        print(json.dumps({run_id: epoch for run_id, epoch in outcomes if epoch}), flush=True)
    await session.close()
    await channel.close()


if __name__ == "__main__":
    asyncio.run(main())
