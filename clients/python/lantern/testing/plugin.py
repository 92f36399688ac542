"""The pytest plugin: fixtures for whoever tests workflows. It loads nothing of Lantern before one is asked for."""

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from lantern.testing.environment import Environment


@pytest.fixture
def lantern_env() -> "Iterator[Environment]":
    """The engine in memory; see lantern.testing.Environment."""
    from lantern.testing.environment import Environment

    with Environment() as environment:
        yield environment


@pytest.fixture
def lantern_faults() -> Callable[..., Any]:
    """Runs a workflow or a scenario under every fault; see lantern.testing.check_every_fault."""
    from lantern.testing.every_fault import check_every_fault

    return check_every_fault
