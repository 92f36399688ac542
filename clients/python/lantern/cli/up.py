"""`lantern up`: journal, recovery and executors on this machine, each its own process, for the life of the command."""

import asyncio
import contextlib
import os
import signal
import time
from collections.abc import Coroutine, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from rich import box
from rich.console import Console
from rich.table import Table

from lantern.cli import endpoints, exit_codes, postgres_guard
from lantern.cli.endpoints import Endpoints
from lantern.cli.local_postgres import LocalPostgres
from lantern.cli.services import START_TIMEOUT_S, STOP_TIMEOUT_S, Service, ServiceSpec, free_ports
from lantern_kernel import reasons
from lantern_kernel.errors import InvalidField, LanternError

RESTART_S_MIN, RESTART_S_MAX = 0.2, 5.0
"""The pause before a dead service is started again: doubling between these."""

STEADY_S = 10.0
"""A service that lived this long begins anew with the shortest pause."""

PARENT_WATCH_S = 0.5
"""How soon the end of a parent is noticed; the services themselves are told by the kernel."""

COUNT_MAX = 64
"""Of executors and of recovery services."""


T = TypeVar("T")


@dataclass(frozen=True, kw_only=True, slots=True)
class UpOptions:
    """What the command was asked for."""

    # sqlite:PATH, postgresql://..., or postgres for a private one; empty is SQLite in `folder`.
    database: str
    # Holds the state file, the logs and the default database.
    folder: Path
    # How many executors.
    executors: int
    # How many recovery services.
    recoveries: int
    # Modules with the user's agents: dotted names or paths.
    modules: tuple[str, ...]


def check_options(options: UpOptions) -> UpOptions:
    """Returns the options; raises InvalidField naming the one that cannot be."""
    database = options.database
    if database and database != "postgres" and not database.startswith(("sqlite:", "postgresql://")):
        raise InvalidField("--db", f"{database!r} is neither sqlite:PATH nor postgresql://... nor postgres")
    for name, count in (("--executors", options.executors), ("--recoveries", options.recoveries)):
        if not 0 <= count <= COUNT_MAX:
            raise InvalidField(name, f"{count} is not between 0 and {COUNT_MAX}")
    for module in options.modules:
        if "," in module:
            raise InvalidField("--module", f"{module!r}: give each module an option of its own")
        if module.endswith(".py") and not Path(module).is_file():
            raise InvalidField("--module", f"there is no file {module}")
    return options


def plan(options: UpOptions, database: str, ports: Sequence[int]) -> list[ServiceSpec]:
    """The services, the journal first; an executor without any module would drive nothing, so there is none."""
    left = iter(ports)
    journal = ServiceSpec(
        name="journal", package="lantern_journal", port=next(left), settings={"LANTERN_DATABASE": database}
    )
    at = {"LANTERN_JOURNAL": journal.address}
    executor_settings = {**at, "LANTERN_MODULES": ",".join(options.modules)}
    recoveries = _named("recovery", options.recoveries)
    executors = _named("executor", options.executors if options.modules else 0)
    return [
        journal,
        *(ServiceSpec(name=n, package="lantern_recovery", port=next(left), settings=at) for n in recoveries),
        *(
            ServiceSpec(name=n, package="lantern_executor", port=next(left), settings=executor_settings)
            for n in executors
        ),
    ]


def _named(word: str, count: int) -> list[str]:
    return [word] if count == 1 else [f"{word}-{number}" for number in range(1, count + 1)]


def run(options: UpOptions, console: Console) -> int:
    """Runs until Ctrl-C or SIGTERM; the exit code. Raises LanternError where it cannot begin."""
    check_options(options)
    with endpoints.exclusive(options.folder):
        return asyncio.run(_Up(options, console).run())


class _Up:
    """One `lantern up`."""

    def __init__(self, options: UpOptions, console: Console) -> None:
        self._options = options
        self._console = console
        self._stop = asyncio.Event()
        self._services: list[Service] = []
        self._database = options.database

    async def run(self) -> int:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            loop.add_signal_handler(number, self._on_signal)
        await self._wait_for_leftovers()
        async with contextlib.AsyncExitStack() as stack:
            stack.callback(asyncio.create_task(self._end_with_parent()).cancel)
            if self._options.database == "postgres":
                self._database = await self._start_postgres(stack)
            elif not self._options.database:
                self._database = f"sqlite:{self._options.folder / 'lantern.db'}"
            count = 1 + self._options.recoveries + self._options.executors
            specs = plan(self._options, self._database, free_ports(count))
            self._services = [Service(spec, self._options.folder / "logs") for spec in specs]
            try:
                return await self._run_services()
            finally:
                await self._stop_services()
                endpoints.remove(self._options.folder)

    async def _end_with_parent(self) -> None:
        """Stops in good order where LANTERN_EXIT_WITH_PARENT names a parent that is gone, however it ended."""
        parent = os.environ.get("LANTERN_EXIT_WITH_PARENT", "")
        while parent.isdigit() and not self._stop.is_set():
            if os.getppid() != int(parent):
                self._stop.set()
            await asyncio.sleep(PARENT_WATCH_S)

    def _on_signal(self) -> None:
        if self._stop.is_set():
            # A second Ctrl-C: no more patience.
            for service in self._services:
                if service.pid and service.exit_code is None:
                    with contextlib.suppress(ProcessLookupError):
                        os.killpg(service.pid, signal.SIGKILL)
        self._stop.set()

    async def _run_services(self) -> int:
        journal, *others = self._services
        for group in ([journal], others):
            failed = await self._start(group)
            if failed is not None:
                if self._stop.is_set():
                    return exit_codes.OK
                self._show_failure(failed)
                return exit_codes.RUN_FAILED
        self._write_endpoints()
        self._show_table()
        tasks = [asyncio.create_task(self._keep_running(service)) for service in self._services]
        await self._stop.wait()
        self._console.print("stopping")
        await asyncio.gather(*tasks)
        return exit_codes.OK

    async def _start(self, group: Sequence[Service]) -> Service | None:
        """Starts services together; the first that does not come up, or that was not waited for since we stop."""
        began_s = time.monotonic()
        for service in group:
            await service.start()
        for service in group:
            healthy = await self._unless_stopped(service.wait_healthy())
            if not healthy:
                return service
            took = f"{time.monotonic() - began_s:.1f} s"
            self._console.print(f"  {service.spec.name:<12} up  {service.spec.address:<16} {took:>6}", highlight=False)
        return None

    async def _unless_stopped(self, waiting: Coroutine[Any, Any, T]) -> T | None:
        """What it answers; None as soon as we are to stop."""
        task, stop = asyncio.create_task(waiting), asyncio.create_task(self._stop.wait())
        await asyncio.wait({task, stop}, return_when=asyncio.FIRST_COMPLETED)
        stop.cancel()
        if self._stop.is_set():
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            return None
        return task.result()

    async def _keep_running(self, service: Service) -> None:
        """Starts a service again, on its port, whenever it ends; returns when we are to stop.

        It is never cancelled: a start that is cut off could leave a process that nobody knows.
        """
        pause_s = RESTART_S_MIN
        while True:
            began_s = time.monotonic()
            code = await self._unless_stopped(service.wait_ended())
            if code is None:
                return
            pause_s = RESTART_S_MIN if time.monotonic() - began_s >= STEADY_S else min(pause_s, RESTART_S_MAX)
            how = f"killed by signal {-code}" if code < 0 else f"ended with code {code}"
            self._console.print(
                f"  {service.spec.name} {how}; starting it again in {pause_s:.1f} s (log: {service.log_path})",
                style="yellow",
                highlight=False,
                soft_wrap=True,
            )
            await self._unless_stopped(asyncio.sleep(pause_s))
            if self._stop.is_set():
                return
            pause_s *= 2
            await service.start()
            self._write_endpoints()
            if await self._unless_stopped(service.wait_healthy()):
                self._console.print(
                    f"  {service.spec.name} up again  pid {service.pid}", style="green", highlight=False
                )

    async def _stop_services(self) -> None:
        """Executors first, so that they can hand their runs back; the journal last."""
        for package in ("lantern_executor", "lantern_recovery", "lantern_journal"):
            await asyncio.gather(*(s.stop() for s in self._services if s.spec.package == package))

    async def _start_postgres(self, stack: contextlib.AsyncExitStack) -> str:
        self._console.print("  starting a private PostgreSQL")
        try:
            postgres = LocalPostgres()
            guard = postgres_guard.start(postgres.folder)
            stack.callback(_end_guard, guard)
            stack.callback(postgres.remove)
            await asyncio.to_thread(postgres.start)
            return postgres.create_database("lantern")
        except RuntimeError as error:
            raise LanternError(reasons.UNAVAILABLE, f"PostgreSQL: {error}", field="--db") from None

    async def _wait_for_leftovers(self) -> None:
        """Lets the services of an earlier command that was killed come to their end: they hold the database."""
        earlier = endpoints.read(self._options.folder)
        if earlier is None:
            return
        end_s = time.monotonic() + STOP_TIMEOUT_S
        while time.monotonic() < end_s and any(_is_service(pid) for pid in earlier.pids.values()):
            if self._stop.is_set():
                break
            await asyncio.sleep(0.1)
        endpoints.remove(self._options.folder)

    def _write_endpoints(self) -> None:
        by_package: dict[str, list[str]] = {}
        for service in self._services:
            by_package.setdefault(service.spec.package, []).append(service.spec.address)
        Endpoints(
            journal=by_package["lantern_journal"][0],
            executors=tuple(by_package.get("lantern_executor", ())),
            recovery=next(iter(by_package.get("lantern_recovery", ())), ""),
            database=self._database,
            pids={service.spec.name: service.pid for service in self._services if service.pid},
        ).write(self._options.folder)

    def _show_failure(self, service: Service) -> None:
        code = service.exit_code
        how = (
            f"is not healthy after {START_TIMEOUT_S:.0f} s"
            if code is None
            else f"ended with code {code} while starting"
        )
        self._console.print(
            f"error: {service.spec.name} {how}; the end of {service.log_path}:", style="red", soft_wrap=True
        )
        for line in service.log_tail():
            self._console.print(f"  {line}", highlight=False, soft_wrap=True)

    def _show_table(self) -> None:
        table = Table(box=box.SIMPLE, pad_edge=False)
        for heading in ("service", "address", "pid", "log"):
            table.add_column(heading, overflow="fold")
        for service in self._services:
            table.add_row(service.spec.name, service.spec.address, str(service.pid), str(service.log_path))
        self._console.print(table)
        self._console.print(f"database {self._database}", highlight=False)
        if self._options.database == "postgres":
            self._console.print("         a private one: its data go when this command ends", style="yellow")
        self._console.print(f"state    {self._options.folder / 'endpoints.json'}", highlight=False)
        if not self._options.modules:
            self._console.print(
                f"no --module was given: start workers with `lantern worker --module M --dir {self._options.folder}`",
                highlight=False,
            )
        self._console.print("Ctrl-C stops everything")


def _end_guard(guard: Any) -> None:
    guard.stdin.close()
    guard.wait()


def _is_service(pid: int) -> bool:
    """Whether that process is one of ours; a process id may long be somebody else's."""
    try:
        return b"lantern_" in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False
