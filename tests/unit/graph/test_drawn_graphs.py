"""2,000 graphs, half of them spoiled: the check finds fault with exactly those whose regions are not closed.

`LANTERN_TEST_SEED` says which is the first seed.
"""

import json
import os
from random import Random

import pytest
from closed_regions import is_well_made
from drawn_graphs import Drawing, spoil

from lantern_kernel.graph.check import faults_of

FIRST = int(os.environ.get("LANTERN_TEST_SEED", "0"))
GRAPHS_PER_SEED = 200


@pytest.mark.parametrize("seed", range(FIRST, FIRST + 10))
def test_both_judge_alike(seed: int):
    print(f"LANTERN_TEST_SEED={seed}")
    chance = Random(seed)
    judged = {True: 0, False: 0}
    for number in range(GRAPHS_PER_SEED):
        graph = Drawing(chance).draw()
        if number % 2:
            spoil(graph, chance)
        else:
            assert is_well_made(graph), graph
        faults = faults_of(json.dumps(graph).encode())
        assert (not faults) == is_well_made(graph), (faults, json.dumps(graph))
        judged[not faults] += 1
    assert min(judged.values()) > GRAPHS_PER_SEED / 10, judged
