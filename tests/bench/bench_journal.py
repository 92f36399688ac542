"""Goal: know how many steps a second the journal takes in, how long one takes, and what each part of it costs.

Method: whole processes. A load of runs in flight (journal_load.py, over the executor's session adapter) against
`python -m lantern_journal` on PostgreSQL (a server of its own, default settings) and SQLite, with events already there
(journal_loader.py). In each round every configuration is measured once, by turns with the yardstick where `--reference`
names its directory; medians over the rounds, and ratios only within one call. Every line is JSON.
"""

import argparse
import asyncio
import contextlib
import json
import statistics
import sys
import tempfile
from collections.abc import AsyncGenerator, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import journal_loader
import journal_processes as processes
from journal_reference import Reference
from journal_report import Found, Rounds, bounds, summaries

from lantern.cli.local_postgres import LocalPostgres

ABLATED = ("", "chain", "fence", "sessions", "feed")
ABLATED_RUNS = 64
SHOWN = 7
Name = TypeVar("Name", int, str)


@dataclass(kw_only=True, slots=True)
class Places:
    """Where the databases are."""

    # Of the SQLite files and the yardstick's copy.
    folder: Path
    # The private server.
    postgres: LocalPostgres
    # The yardstick; None where it was not named.
    reference: Reference | None

    def url(self, database: str, name: str) -> str:
        """Of a database of that name, made where there is none."""
        if database == "sqlite":
            return f"sqlite:{self.folder / name}.db"
        return self.postgres.create_database(name)

    def postgres_pid(self, database: str) -> int:
        """The server's first process; 0 for SQLite."""
        if database == "sqlite":
            return 0
        return int((self.postgres.folder / "data" / "postmaster.pid").read_text().split()[0])


def say(**line: Any) -> None:
    """Prints a line."""
    sys.stdout.write(json.dumps({"benchmark": "journal", **line}) + "\n")
    sys.stdout.flush()


def turned(values: Sequence[Any], by: int) -> Iterator[Any]:
    """The values in turn, beginning elsewhere in each round: none is always the first."""
    yield from (values[(at + by) % len(values)] for at in range(len(values)))


async def filled(
    places: Places, database: str, sizes: Sequence[int], name: str, *, is_open_only: bool = False
) -> dict[int, str]:
    """Databases with so many events, or with those of the open runs among them; their URLs by size."""
    urls: dict[int, str] = {}
    for size in sorted(sizes, reverse=True):
        urls[size] = places.url(database, f"{name}_{size}")
        began = asyncio.get_running_loop().time()
        await asyncio.to_thread(journal_loader.fill, urls[size], size, is_open_only=is_open_only)
        took_s = asyncio.get_running_loop().time() - began
        say(measure="loaded", database=database, events=size, open_only=is_open_only, seconds=round(took_s, 1))
    return urls


@contextlib.asynccontextmanager
async def journals(urls: dict[Name, str]) -> AsyncGenerator[dict[Name, processes.Journal]]:
    """A journal process on each."""
    async with contextlib.AsyncExitStack() as stack:
        contexts = [processes.journal(url) for url in urls.values()]
        started = await asyncio.gather(*map(stack.enter_async_context, contexts))
        yield dict(zip(urls, started, strict=True))


async def compare(places: Places, options: argparse.Namespace, urls: dict[str, dict[int, str]]) -> Found:
    """All rounds of the load."""
    found: Found = {}
    reference_url = places.postgres.create_database("reference") if "postgres" in options.database else ""
    for number in range(options.rounds):
        for database in options.database:
            async with journals(urls[database]) as running:
                for runs in options.runs:
                    for size in turned([None, *running], number):
                        if size is None and places.reference is None:
                            continue
                        if size is None:
                            assert places.reference is not None
                            where = reference_url if database == "postgres" else None
                            line = await places.reference.measure(where, runs, options.seconds, options.payload)
                        else:
                            line = await _load(places, options, database, running[size], runs)
                        found.setdefault((database, size, runs), Rounds()).found.append(line)
                        kind = {"measure": "reference"} if size is None else {"measure": "load", "events_before": size}
                        say(**kind, database=database, runs=runs, round=number, **line)
    return found


async def _load(
    places: Places, options: argparse.Namespace, database: str, journal: processes.Journal, runs: int, *more: str
) -> dict[str, Any]:
    arguments = ["--runs", str(runs), "--seconds", str(options.seconds), "--payload", str(options.payload), *more]
    return await processes.load(journal, places.postgres_pid(database), *arguments)


async def ablate(places: Places, options: argparse.Namespace) -> None:
    """What each part costs: the whole journal by turns with journals that lack one part.

    `projections` is measured with runs that are created and ended while the clock runs; the rest with steps alone.
    """
    whole = (("", "--whole"), ("projections", "--whole"))
    for database in options.database:
        url = (await filled(places, database, [min(options.sizes)], "ablation")).popitem()[1]
        found: dict[tuple[str, ...], Rounds] = {}
        for number in range(options.rounds):
            for without, *more in turned([*((part,) for part in ABLATED), *whole], number):
                async with processes.journal(url, without) as journal:
                    line = await _load(places, options, database, journal, ABLATED_RUNS, *more)
                found.setdefault((without, *more), Rounds()).found.append(line)
        for (without, *more), rounds in found.items():
            everything = found["", *more]
            say(
                measure="ablation",
                database=database,
                load="whole runs" if more else "steps",
                without=without or "nothing",
                runs=ABLATED_RUNS,
                **rounds.summary(),
                cost_us=round(_cpu_us(everything) - _cpu_us(rounds), 1),
                steps_to_all=round(rounds.median("steps_s") / everything.median("steps_s"), 3),
            )


def _cpu_us(rounds: Rounds) -> float:
    return sum(rounds.summary()["cpu_us"].values())


async def probe(options: argparse.Namespace, places: Places, urls: dict[str, dict[int, str]]) -> None:
    """Single operations on an empty journal, on the fullest, and on one that holds the open runs of that alone."""
    for database in options.database:
        full = max(urls[database])
        places_of = {
            "nothing": (await filled(places, database, [0], "empty"))[0],
            "open runs": (await filled(places, database, [full], "open", is_open_only=True))[full],
            "everything": urls[database][full],
        }
        async with journals(places_of) as running:
            results = await processes.probe(list(running.values()))
            shown_s: dict[str, list[float]] = {held: [] for held in running}
            for number in range(SHOWN):
                for held, result in turned(list(zip(running, results, strict=True)), number):
                    shown_s[held].append(await processes.show(running[held], result["run_id"]))
        for held, result in zip(running, results, strict=True):
            result["runs_show"] = {"median_ms": round(statistics.median(shown_s[held]) * 1000, 1)}
            say(measure="operations", database=database, of_events=full, held=held, **result)


async def measure(options: argparse.Namespace) -> None:
    """Everything that was asked for."""
    with tempfile.TemporaryDirectory(prefix="lantern-bench-") as folder, LocalPostgres() as postgres:
        reference = Reference(options.reference, Path(folder)) if options.reference else None
        places = Places(folder=Path(folder), postgres=postgres, reference=reference)
        urls = {database: await filled(places, database, options.sizes, "past") for database in options.database}
        if options.ablation:
            # First: the load adds events and open runs.
            await probe(options, places, urls)
        found = await compare(places, options, urls)
        if options.ablation:
            await ablate(places, options)
    for line in (*summaries(found), *bounds(found)):
        say(**line)


def main() -> None:
    """Reads what is wanted and measures it."""

    def numbers(text: str) -> list[int]:
        return [int(part) for part in text.split(",")]

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--reference", type=Path, help="directory of the yardstick, measured by turns with ours")
    parser.add_argument("--sizes", type=numbers, help="events already there; 10000,1000000,10000000")
    parser.add_argument("--runs", type=numbers, default=[1, 64, 512], help="in flight")
    parser.add_argument("--rounds", type=int, help="5")
    parser.add_argument("--seconds", type=float, help="of each measurement; 2")
    parser.add_argument("--payload", type=int, default=200, help="bytes of a step_completed")
    parser.add_argument("--database", type=lambda text: text.split(","), default=["postgres", "sqlite"])
    parser.add_argument("--ablation", action="store_true", help="also what each part costs, and single operations")
    parser.add_argument("--quick", action="store_true", help="10 thousand events and 2 rounds of 1 s, unless told")
    options = parser.parse_args()
    options.sizes = options.sizes or ([10_000] if options.quick else [10_000, 1_000_000, 10_000_000])
    options.rounds = options.rounds or (2 if options.quick else 5)
    options.seconds = options.seconds or (1.0 if options.quick else 2.0)
    asyncio.run(measure(options))


if __name__ == "__main__":
    main()
