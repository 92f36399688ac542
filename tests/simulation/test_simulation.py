"""Goal: whatever is lost, late, frozen or killed, and in whatever order, no run is driven twice, lost or left behind.

Method: many seeds, each a cluster in one simulated world (`simulate`); every check of every seed must hold. A seed that
fails is repeated with its whole trace by `make simulate SEED=n`. `LANTERN_TEST_SEED` is the first of them,
`LANTERN_TEST_SIMULATIONS` how many.
"""

import multiprocessing
import os
import subprocess
import sys

import pytest

from simulation.simulate import Outcome, simulate

FIRST = int(os.environ.get("LANTERN_TEST_SEED") or "1")
COUNT = int(os.environ.get("LANTERN_TEST_SIMULATIONS") or "200")
SHARE = 25
"""Seeds that a process takes at a time."""

PROCESSES = 2

PATIENCE_S = 500
"""For all seeds; a thousand take one minute of two processors."""


def run_share(first: int, count: int) -> list[Outcome]:
    """The outcomes of some seeds."""
    return [simulate(seed) for seed in range(first, first + count)]


@pytest.mark.timeout(600)
def test_every_seed_ends_well(capsys: pytest.CaptureFixture[str]) -> None:
    with capsys.disabled():
        print(f" seeds {FIRST} to {FIRST + COUNT - 1}", end=" ", flush=True)
    firsts = range(FIRST, FIRST + COUNT, SHARE)
    counts = [min(SHARE, FIRST + COUNT - first) for first in firsts]
    # On the way out a `Pool` ends its processes, so a seed that never ends fails this test and does not hold it up.
    with multiprocessing.get_context("spawn").Pool(PROCESSES) as pool:
        shares = pool.starmap_async(run_share, zip(firsts, counts, strict=True), chunksize=1).get(PATIENCE_S)
    outcomes = [outcome for share in shares for outcome in share]
    bad = [f"make simulate SEED={each.seed}: {'; '.join(each.faults[:3])}" for each in outcomes if each.faults]
    assert not bad, "\n".join(bad)
    assert len({outcome.digest for outcome in outcomes}) == COUNT, "no two seeds tell one story"


@pytest.mark.parametrize("seed", [FIRST, FIRST + 1, FIRST + 2])
def test_a_seed_tells_the_same_story_in_every_process(seed: int) -> None:
    """Also under another order of sets and dictionaries of texts."""
    here = simulate(seed)
    for hash_seed in ("0", "1"):
        found = subprocess.run(
            [sys.executable, "-c", f"from simulation.simulate import simulate; print(simulate({seed}).digest)"],
            env={**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": os.pathsep.join(sys.path)},
            stdout=subprocess.PIPE,
            text=True,
            check=True,
        )
        assert found.stdout.strip() == here.digest
