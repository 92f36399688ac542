"""Goal: the contract is one list of tests, run on every store; what is for one alone says so.

Method: look at what was collected.
"""

from collections import defaultdict

import pytest
from store_list import COLLECTED, STORES


def test_every_test_of_the_store_runs_on_every_database(pytestconfig: pytest.Config) -> None:
    found: defaultdict[str, set[str]] = defaultdict(set)
    for item in pytestconfig.stash[COLLECTED]:
        if (
            not isinstance(item, pytest.Function)
            or "store" not in item.fixturenames
            or "contract" not in item.path.parts
        ):
            continue
        if any("store" in mark.args[0] for mark in item.iter_markers("parametrize")):
            continue  # it names the stores itself
        found[item.nodeid.split("[")[0]].add(str(item.callspec.params["store"]))
    assert {name: stores for name, stores in found.items() if stores != set(STORES)} == {}
