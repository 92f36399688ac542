"""What is wrong with a graph, and where."""

from dataclasses import dataclass

from lantern_kernel.graph.definition import Edge, Node


@dataclass(frozen=True, kw_only=True, slots=True)
class Fault:
    """Something that is wrong with a definition."""

    # A JSON pointer (RFC 6901); empty for the whole.
    path: str
    # What kind of fault, lower case with underscores.
    code: str
    # For people.
    message: str


def at_node(node: Node, *members: str | int) -> str:
    """The JSON pointer of a node, or of a member of its data."""
    return pointer("nodes", node.index, *(("data", *members) if members else ()))


def at_edge(edge: Edge) -> str:
    """The JSON pointer of an edge."""
    return pointer("edges", edge.index)


def pointer(*parts: str | int) -> str:
    """A JSON pointer (RFC 6901)."""
    return "".join("/" + str(part).replace("~", "~0").replace("/", "~1") for part in parts)
