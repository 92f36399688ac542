"""An order survives kill -9 of the executor that drives it: `python -m order.demo [--db sqlite|postgres]`.

The executor is killed in the worst moment: the shop took the money, and the reply is not recorded. Shown twice, with an
idempotency key and without one. Exits with 0 only where everything that is claimed was seen.
"""

import argparse
import asyncio
import os
import signal
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from rich.console import Console
from rich.panel import Panel
from rich.rule import Rule
from rich.table import Table

from lantern.client import Client
from lantern_kernel import kinds
from lantern_kernel.event import Event, find_chain_fault
from lantern_kernel.payloads import unpack
from order.stage import Stage, StageError

WHOLE_TIMEOUT_S = 180.0
RESULT_TIMEOUT_S = 60.0
STEPS = ("reserve", "charge", "ship", "mail")


@dataclass(frozen=True, kw_only=True)
class Scene:
    """One order, and what must come of it."""

    # Its headline.
    title: str
    # The order, and the run's workflow id.
    order_id: str
    # Whether the charge carries its idempotency key.
    use_key: bool
    # How often the shop charges.
    charges: int
    # Why that is so.
    why: str


SCENES = (
    Scene(
        title="With an idempotency key",
        order_id="order-1042",
        use_key=True,
        charges=1,
        why="The second executor sent the charge again under the same key. The shop knew the key, gave its first "
        "answer again and took nothing: executed twice, charged once.",
    ),
    Scene(
        title="The same without a key",
        order_id="order-1043",
        use_key=False,
        charges=2,
        why="Nobody could know whether the lost request had been executed, so it was sent again, and the shop could "
        "not tell the repeat from a second order. At-least-once execution needs idempotent effects; a key makes "
        "them so.",
    ),
)


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What was seen of an order."""

    # The run.
    run_id: str
    # Its events.
    events: Sequence[Event]
    # When the executor was killed, microseconds since the Unix epoch.
    killed_us: int
    # The run's state at the end.
    state: str
    # Its result; None where it has none.
    result: Any
    # The shop's ledger of this order.
    ledger: dict[str, Any]
    # The shop's request log of this order.
    requests: list[dict[str, Any]]


class Checks:
    """Everything that is claimed, checked and printed as it is seen."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self.failed = 0

    def equal(self, what: str, expected: object, actual: object) -> None:
        """One claim."""
        if expected == actual:
            self._console.print(f"  [green]ok[/]      {what}: [bold]{actual}[/]", highlight=False)
            return
        self.failed += 1
        self._console.print(f"  [bold red]FAILED[/]  {what}: expected {expected}, got {actual}", highlight=False)


async def play(scene: Scene, stage: Stage, console: Console) -> Outcome:
    """Starts the order, kills its executor in the worst moment, and waits for the end."""

    def say(text: str) -> None:
        console.print(f"  {text}", highlight=False)

    await stage.post_shop("/faults", {"path": "/charges", "action": "hold"})
    async with stage.client() as client:
        order = {"orderId": scene.order_id, "useKey": scene.use_key, "shop": stage.shop, "smtp": stage.smtp}
        run = await client.start("order", order, workflow_id=scene.order_id)
        say(f"started run [bold]{run.run_id}[/] of workflow id [bold]{scene.order_id}[/]")
        await stage.await_held()
        grant = _last(await client.events(run.run_id), kinds.LEASE_GRANTED)
        name, pid = await stage.find_driver(str(unpack(grant.payload).facts["worker"]))
        say("the shop has taken GBP 40.00; its reply is on the way")
        killed_us = time.time_ns() // 1000
        os.kill(pid, signal.SIGKILL)
        say(f"[bold red]kill -9[/] {name} (pid {pid}), before the reply is recorded")
        await stage.post_shop("/faults/release", {})
        outcome = await _await_outcome(scene, stage, client, run.run_id, killed_us)
    new_name, new_pid = await stage.find_driver(
        str(unpack(_last(outcome.events, kinds.LEASE_GRANTED).payload).facts["worker"])
    )
    say(f"{new_name} (pid {new_pid}) took over, replayed the journal, finished: {outcome.state}")
    return outcome


async def _await_outcome(scene: Scene, stage: Stage, client: Client, run_id: str, killed_us: int) -> Outcome:
    try:
        async with asyncio.timeout(RESULT_TIMEOUT_S):
            run = await client.wait(run_id)
    except TimeoutError:
        run = await client.get(run_id)
    return Outcome(
        run_id=run_id,
        events=await client.events(run_id),
        killed_us=killed_us,
        state=run.state,
        result=run.result_value,
        ledger=await stage.get_shop(f"/ledger?orderId={scene.order_id}"),
        requests=(await stage.get_shop(f"/requests?orderId={scene.order_id}"))["requests"],
    )


def show_ledger(outcome: Outcome, console: Console) -> None:
    """The shop's side of it: what reached it, and what it did."""
    table = Table(title="What reached the shop", title_justify="left", title_style="bold", box=None, padding=(0, 2))
    for column in ("request", "idempotency key", "epoch", "the shop"):
        table.add_column(column)
    for entry in outcome.requests:
        key = entry["key"]
        shown = f"{key.lstrip('<')[:12]}..." if key else "none"
        style = {"acted": "green", "deduplicated": "yellow"}.get(entry["outcome"], "red")
        table.add_row(entry["path"], shown, entry["epoch"] or "-", f"[{style}]{entry['outcome']}[/]")
    console.print(table)
    console.print(f"  charged in all: [bold]{_pounds(outcome.ledger['chargedPence'])}[/]", highlight=False)
    console.print()


def check(scene: Scene, outcome: Outcome, checks: Checks) -> None:
    """Every claim about one order."""
    events = outcome.events
    completed = [event.step_id for event in events if event.kind == kinds.STEP_COMPLETED]
    checks.equal("the run's state", "SUCCEEDED", outcome.state)
    checks.equal("charges in the shop's ledger", scene.charges, len(outcome.ledger["charges"]))
    checks.equal("money taken", _pounds(scene.charges * 4000), _pounds(outcome.ledger["chargedPence"]))
    checks.equal("parcels and mails sent", (1, 1), (len(outcome.ledger["parcels"]), len(outcome.ledger["mails"])))
    checks.equal("steps completed, each once", ", ".join(STEPS), ", ".join(completed))
    choice = outcome.result and outcome.result["option"]
    checks.equal("shipped as chosen", choice, "".join(parcel["option"] for parcel in outcome.ledger["parcels"]))
    checks.equal("drivers of the run", 2, events[-1].epoch)
    sent = [request for request in outcome.requests if request["path"] == "/charges"]
    checks.equal("requests to charge", 2, len(sent))
    checks.equal("keys among them", 1 if scene.use_key else 0, len({entry["key"] for entry in sent} - {""}))
    checks.equal("faults in the hash chain", None, find_chain_fault(outcome.run_id, events))


def show_times(outcome: Outcome, console: Console) -> None:
    """How long the run stood still."""
    later = [event for event in outcome.events if event.epoch > 1]
    granted = next((event for event in later if event.kind == kinds.LEASE_GRANTED), None)
    live = next((event for event in later if event.kind == kinds.STEP_STARTED), None)
    if granted is None or live is None:
        return
    console.print(
        f"  kill to new lease [bold]{_ms(granted, outcome.killed_us)}[/], "
        f"kill to live (the step executed again) [bold]{_ms(live, outcome.killed_us)}[/]",
        highlight=False,
    )
    console.print()


async def perform(database: str, console: Console) -> int:
    """The whole demonstration; the exit code."""
    checks = Checks(console)
    began_s = time.monotonic()
    shown = "SQLite" if database == "sqlite" else "PostgreSQL"
    console.print(Panel.fit(f"[bold]Lantern[/]: an order survives [bold red]kill -9[/] of its executor ({shown})"))
    stage = Stage(database)
    async with stage:
        console.print("  journal, recovery, two executors and the shop are up", highlight=False)
        for scene in SCENES:
            console.print()
            console.print(Rule(f"[bold]{scene.title}[/]", align="left"))
            outcome = await play(scene, stage, console)
            console.print()
            await stage.show_run(outcome.run_id)
            console.print()
            show_times(outcome, console)
            show_ledger(outcome, console)
            check(scene, outcome, checks)
            console.print()
            console.print(f"  {scene.why}", highlight=False)
        stage.endpoints()
    console.print()
    checks.equal("processes left behind", [], stage.survivors())
    seconds = f"{time.monotonic() - began_s:.0f} s"
    if checks.failed:
        console.print(f"[bold red]{checks.failed} of the claims did not hold[/] ({seconds})", highlight=False)
        return 1
    console.print(f"[bold green]Everything held[/] ({seconds}).", highlight=False)
    return 0


def _last(events: Sequence[Event], kind: str) -> Event:
    return next(event for event in reversed(events) if event.kind == kind)


def _ms(event: Event, since_us: int) -> str:
    return f"{(event.time_us - since_us) / 1000:.0f} ms"


def _pounds(pence: int) -> str:
    return f"GBP {pence // 100}.{pence % 100:02}"


async def _main(database: str, console: Console) -> int:
    task = asyncio.current_task()
    assert task is not None, "asyncio.run makes one"
    # As for Ctrl-C: what was started is stopped before we go.
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    try:
        async with asyncio.timeout(WHOLE_TIMEOUT_S):
            return await perform(database, console)
    except TimeoutError:
        console.print(f"[bold red]not finished within {WHOLE_TIMEOUT_S:.0f} s[/]")
    except StageError as error:
        console.print(f"[bold red]{error}[/]", highlight=False)
    return 1


def main() -> None:
    """Reads the command line and plays."""
    parser = argparse.ArgumentParser(prog="order.demo", description="An order survives kill -9 of its executor.")
    parser.add_argument("--db", choices=("sqlite", "postgres"), default="sqlite", help="where the journal is kept")
    arguments = parser.parse_args()
    try:
        sys.exit(asyncio.run(_main(arguments.db, Console(soft_wrap=False))))
    except (KeyboardInterrupt, asyncio.CancelledError):
        sys.exit(130)


if __name__ == "__main__":
    main()
