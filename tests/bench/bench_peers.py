"""Goal: know how Lantern compares with other engines for durable execution, measured beside them on one machine.

Method: W1 is one run of 100 steps alone, W2 are runs of 10 steps with 64 in flight, W3 is kill -9 of the worker amid 50
runs of 10 steps of 20 ms. Lantern and the peers take turns, round by round, each with whole processes of its own on the
same PostgreSQL server (Restate on its own log); medians over the rounds, and ratios only within one call. `--peers`
names the directory of the peers' scripts, which are not part of this repository; their packages are installed once from
PyPI and npm into a cache folder. Every line is JSON.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import peers_lantern
import uvloop

from lantern.cli.local_postgres import LocalPostgres

IN_FLIGHT, STEPS, W1_STEPS = 64, 10, 100
PEER_WITHIN_S = 900
OURS = "lantern"


@dataclass(frozen=True, kw_only=True, slots=True)
class Peer:
    """An engine that is measured beside ours."""

    # Its script.
    script: str
    # The folder of its packages, below the cache.
    venv: str
    # Of PyPI.
    packages: tuple[str, ...]
    # Of npm.
    npm: tuple[str, ...] = ()
    # Its best settings for W1 and W2.
    options: tuple[str, ...] = ()
    # And for W3; none: not measured.
    recovery: tuple[str, ...] | None = None
    # Whether it works on PostgreSQL.
    uses_postgres: bool = True
    # What prepares its database: a program of its venv; the database is in the variable.
    prepare: tuple[str, tuple[str, ...]] | None = None


def _restate(sdk: str, recovery: tuple[str, ...] | None = None) -> Peer:
    return Peer(
        script="restate_bench.py",
        venv="venv-restate",
        packages=("restate-sdk==1.3.0", "hypercorn", "httpx", "aiohttp", "uvloop"),
        npm=("@restatedev/restate-server@1.7.12", "@restatedev/restate-sdk@1.17.2"),
        options=("--sdk", sdk, "--partitions", "1"),
        recovery=recovery,
        uses_postgres=False,
    )


PEERS: dict[str, Peer] = {
    "restate-python": _restate("py", recovery=("--sdk", "py", "--partitions", "4")),
    "restate-typescript": _restate("ts"),
    "absurd": Peer(
        script="absurd_bench.py",
        venv="venv-absurd",
        packages=("absurd-sdk==0.5.1", "absurdctl==0.5.1", "psycopg[binary]", "uvloop"),
        options=("--conns", "8"),
        recovery=("--conns", "50", "--claim-timeout", "5"),
        prepare=("ABSURD_DATABASE_URL", ("absurdctl", "init")),
    ),
    "dbos": Peer(
        script="dbos_bench.py",
        venv="venv-dbos",
        packages=("dbos==3.4.0", "uvloop"),
        options=("--mode", "sync"),
        recovery=("--mode", "async"),
    ),
    "langgraph": Peer(
        script="langgraph_bench.py",
        venv="venv-lg",
        packages=(
            *("langgraph==1.2.24", "langgraph-checkpoint-postgres==3.2.0", "langgraph-checkpoint-sqlite==3.1.2"),
            *("psycopg[binary,pool]", "uvloop"),
        ),
        options=("--durability", "sync", "--savers", "32"),
        recovery=("--durability", "sync", "--savers", "32"),
    ),
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Bench:
    """What one call measures with."""

    # Where the peers' scripts are.
    scripts: Path
    # Where their packages are.
    cache: Path
    # The server for all that work on PostgreSQL.
    postgres: LocalPostgres
    # Of W2.
    runs: int
    # Of W1.
    w1_reps: int

    def install(self, peer: Peer) -> None:
        """Fetches what is not there yet."""
        venv = self.cache / peer.venv
        if not (venv / "done").exists():
            _call(sys.executable, "-m", "venv", "--clear", str(venv))
            _call(str(venv / "bin" / "pip"), "install", "-q", *peer.packages)
            (venv / "done").touch()
        npm = self.cache / "npm"
        if peer.npm and not (npm / "done").exists():
            npm.mkdir(parents=True, exist_ok=True)
            _call("npm", "install", "--silent", "--prefix", str(npm), *peer.npm)
            (npm / "done").touch()

    def database(self, name: str) -> str:
        """A fresh one."""
        return self.postgres.create_database(f"{name.replace('-', '_')}_{os.urandom(4).hex()}")

    def measure(self, name: str, *, recovery: bool) -> dict[str, Any]:
        """One engine under W1 and W2, or under W3."""
        if name != OURS:
            return self._measure_peer(name, PEERS[name], recovery=recovery)
        database = self.database(name)
        if recovery:
            with tempfile.TemporaryDirectory() as folder:
                return uvloop.run(peers_lantern.recover(database, Path(folder)))
        return uvloop.run(
            peers_lantern.measure(
                database,
                runs=self.runs,
                in_flight=IN_FLIGHT,
                steps=STEPS,
                w1_steps=W1_STEPS,
                w1_reps=self.w1_reps,
            )
        )

    def _measure_peer(self, name: str, peer: Peer, *, recovery: bool) -> dict[str, Any]:
        programs = self.cache / peer.venv / "bin"
        environment = os.environ | {"PEERS_DIR": str(self.cache)}
        options = list((peer.recovery or ()) if recovery else peer.options)
        if peer.uses_postgres:
            database = self.database(name)
            options += ["--postgres", database]
            if peer.prepare is not None:
                variable, (program, *arguments) = peer.prepare
                _call(str(programs / program), *arguments, env=environment | {variable: database})
        sizes = ("--workflows", self.runs, "--concurrency", IN_FLIGHT, "--reps", 1, "--w1-reps", self.w1_reps)
        options += ["--workload", "w3" if recovery else "w1,w2", *map(str, sizes)]
        done = subprocess.run(
            [str(programs / "python"), str(self.scripts / peer.script), *options],
            env=environment,
            capture_output=True,
            text=True,
            timeout=PEER_WITHIN_S,
            check=False,
        )
        lines = done.stdout.strip().splitlines()
        if not lines:
            raise RuntimeError(f"{name} printed nothing and ended with {done.returncode}: {done.stderr[-2000:]}")
        return in_our_words(json.loads(lines[-1]))


def in_our_words(line: dict[str, Any]) -> dict[str, Any]:
    """What a peer's script printed, by our names."""
    found: dict[str, Any] = {}
    if "w1" in line:
        found["w1_ms"] = line["w1"]["ms_per_step"]["median"]
    if "w2" in line:
        found["w2_steps_s"] = line["w2"]["steps_per_s"]["median"]
    if "w3" in line:
        found |= {
            "w3_all_done_s": line["w3"]["restart_to_all_done_s"]["median"],
            "w3_first_step_s": line["w3"]["restart_to_first_step_s"]["median"],
            "w3_recorded_rerun": max(line["w3"]["recorded_steps_rerun"]),
            "w3_in_flight_rerun": max(line["w3"]["in_flight_steps_rerun"]),
        }
    return found


def _call(*arguments: str, env: dict[str, str] | None = None) -> None:
    done = subprocess.run(arguments, env=env, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(arguments[:4])} ended with {done.returncode}: {done.stderr[-2000:]}")


def say(**line: Any) -> None:
    """Prints a line."""
    sys.stdout.write(json.dumps({"benchmark": "peers", **line}) + "\n")
    sys.stdout.flush()


def summary(found: dict[str, dict[str, list[float]]]) -> list[dict[str, Any]]:
    """For each engine the medians over its rounds, the lowest and the highest, and the ratio of ours to it."""
    medians = {name: {key: statistics.median(values) for key, values in all_.items()} for name, all_ in found.items()}
    lines: list[dict[str, Any]] = []
    for name, measured in found.items():
        line: dict[str, Any] = {"engine": name}
        for key, values in measured.items():
            line[key] = {
                "median": round(medians[name][key], 3),
                "range": [round(min(values), 3), round(max(values), 3)],
            }
            ours = medians.get(OURS, {}).get(key)
            if name != OURS and ours is not None and medians[name][key] and not key.endswith("rerun"):
                line[key]["ours_to_it"] = round(ours / medians[name][key], 3)
        lines.append(line)
    return lines


def rounds(bench: Bench, engines: Sequence[str], count: int, *, recovery: bool) -> dict[str, dict[str, list[float]]]:
    """Every engine once a round, by turns; one that fails is told of and left out of that round."""
    found: dict[str, dict[str, list[float]]] = {name: {} for name in engines}
    for number in range(1, count + 1):
        for name in engines:
            if recovery and name != OURS and PEERS[name].recovery is None:
                continue
            try:
                measured = bench.measure(name, recovery=recovery)
            except (RuntimeError, TimeoutError, subprocess.TimeoutExpired) as error:
                say(round=number, engine=name, failed=str(error)[-500:])
                continue
            say(round=number, engine=name, **{key: round(value, 3) for key, value in measured.items()})
            for key, value in measured.items():
                found[name].setdefault(key, []).append(value)
    return found


def main() -> None:
    """Installs what is missing, measures, prints."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "lantern-bench-peers"
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peers", type=Path, required=True, help="directory of the peers' scripts")
    parser.add_argument("--cache", type=Path, default=cache, help="where their packages are (default: %(default)s)")
    parser.add_argument("--only", default=",".join(PEERS), help="peers, with commas between (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--runs", type=int, default=1000, help="of W2 (default: %(default)s)")
    parser.add_argument("--w1-reps", type=int, default=5)
    parser.add_argument("--no-recovery", action="store_true", help="leave W3 out")
    options = parser.parse_args()
    chosen = [name for name in options.only.split(",") if name]
    if unknown := [name for name in chosen if name not in PEERS]:
        parser.error(f"no peer of that name: {', '.join(unknown)}")
    if missing := [PEERS[name].script for name in chosen if not (options.peers / PEERS[name].script).is_file()]:
        parser.error(f"--peers names no directory with {', '.join(missing)}")
    with LocalPostgres() as postgres:
        bench = Bench(
            scripts=options.peers.resolve(),
            cache=options.cache.resolve(),
            postgres=postgres,
            runs=options.runs,
            w1_reps=options.w1_reps,
        )
        for name in chosen:
            bench.install(PEERS[name])
        engines = [OURS, *chosen]
        found = rounds(bench, engines, options.rounds, recovery=False)
        if not options.no_recovery:
            recovered = rounds(bench, engines, options.rounds, recovery=True)
            found = {name: found[name] | recovered[name] for name in engines}
    for line in summary(found):
        say(summary=True, in_flight=IN_FLIGHT, runs=options.runs, rounds=options.rounds, **line)


if __name__ == "__main__":
    main()
