"""What is wrong with a graph, in the journal's words."""

from typing import Any

from lantern_journal.domain.agents import Fault
from lantern_kernel import json_bytes
from lantern_kernel.bounds import DEFINITION_BYTES_MAX
from lantern_kernel.errors import InvalidField


def faults_of_graph(definition: bytes) -> list[Fault]:
    """All that is wrong with a graph's definition; empty where it can be published."""
    try:
        value: Any = json_bytes.decode(definition, "definition", bytes_max=DEFINITION_BYTES_MAX)
    except InvalidField as error:
        return [Fault(path="", code="no_json", message=error.message)]
    if not isinstance(value, dict):
        return [Fault(path="", code="no_object", message="a graph is an object with nodes and edges")]
    return [
        Fault(path=f"/{name}", code="no_list", message=f"{name} is required, and is a list")
        for name in ("nodes", "edges")
        if not isinstance(value.get(name), list)
    ]
