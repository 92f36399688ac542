"""Whether a JSON value has the shape of a graph: all that is wrong, where `definition.parse` stops at the first."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from lantern_kernel.bounds import GRAPH_NODES_MAX
from lantern_kernel.graph.faults import Fault, pointer

EDGES_MAX = 10 * GRAPH_NODES_MAX


def faults_of_shape(value: Any) -> Iterator[Fault]:
    """What is missing or of another type than it has to be."""
    if not isinstance(value, dict):
        yield Fault(path="", code="no_object", message="a graph is an object with nodes and edges")
        return
    root: Mapping[str, Any] = value
    for name, texts, count_max in (
        ("nodes", ("id", "type"), GRAPH_NODES_MAX),
        ("edges", ("source", "target"), EDGES_MAX),
    ):
        listed: Any = root.get(name)
        if not isinstance(listed, list):
            yield Fault(path=pointer(name), code="no_list", message=f"{name} is required, and is a list")
        elif len(listed) > count_max:
            message = f"{len(listed)} {name} are more than the {count_max} allowed"
            yield Fault(path=pointer(name), code="too_many", message=message)
        else:
            yield from _faults_of_entries(name, listed, texts)
    if not isinstance(root.get("settings", {}), dict):
        yield Fault(path="/settings", code="no_object", message="settings is an object")


def _faults_of_entries(name: str, listed: Sequence[Any], texts: Sequence[str]) -> Iterator[Fault]:
    for index, each in enumerate(listed):
        if not isinstance(each, dict):
            yield Fault(path=pointer(name, index), code="no_object", message=f"an object with {', '.join(texts)}")
            continue
        entry: Mapping[str, Any] = each
        for text in texts:
            if not isinstance(entry.get(text), str):
                yield Fault(path=pointer(name, index, text), code="no_text", message=f"{text} is required, a text")
        if name == "nodes" and not isinstance(entry.get("data", {}), dict):
            yield Fault(path=pointer(name, index, "data"), code="no_object", message="data is an object")
        if name == "edges" and not isinstance(entry.get("label", None), str | None):
            yield Fault(path=pointer(name, index, "label"), code="no_text", message="label is a text")
