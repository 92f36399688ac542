"""Goal: values of annotated types survive the way through JSON, and what does not fit is refused by its path.

Method: round trips of random values through encode and the reader of their type; faults by hand.
"""

from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime
from decimal import Decimal
from enum import Enum, IntEnum
from typing import Annotated, Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lantern.program import conversion
from lantern_kernel import json_bytes
from lantern_kernel.errors import InvalidField


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


class Level(IntEnum):
    LOW = 1
    HIGH = 2


@dataclass(frozen=True)
class Tree:
    name: str
    colour: Colour
    level: Level
    price: Decimal
    at: datetime
    day: date
    id: UUID
    pair: tuple[int, str]
    share: float = 0.5
    children: "list[Tree]" = field(default_factory=list["Tree"])
    by_name: "dict[str, Tree]" = field(default_factory=dict[str, "Tree"])
    parent: "Tree | None" = None
    anything: Any = None


_plain = st.builds(
    Tree,
    name=st.text(),
    colour=st.sampled_from(Colour),
    level=st.sampled_from(Level),
    price=st.decimals(allow_nan=False, allow_infinity=False),
    at=st.datetimes(timezones=st.just(UTC)),
    day=st.dates(),
    id=st.uuids(),
    pair=st.tuples(st.integers(), st.text()),
    share=st.floats(allow_nan=False, allow_infinity=False),
    anything=st.one_of(st.none(), st.integers(), st.lists(st.text())),
)


def _grown(one: Tree, children: list[Tree], by_name: dict[str, Tree], parent: Tree | None) -> Tree:
    return replace(one, children=children, by_name=by_name, parent=parent)


def _branches(inner: st.SearchStrategy[Tree]) -> st.SearchStrategy[Tree]:
    named = st.dictionaries(st.text(max_size=3), inner, max_size=2)
    return st.builds(_grown, _plain, st.lists(inner, max_size=2), named, st.one_of(st.none(), inner))


trees = st.recursive(_plain, _branches, max_leaves=4)


@given(trees)
def test_values_survive_the_way_through_json(tree: Tree) -> None:
    reader = conversion.reader_of(Tree)
    assert reader is not None
    assert reader(json_bytes.decode(conversion.encode(tree, "tree"), "tree"), "tree") == tree
    assert reader(tree, "tree") is tree


@pytest.mark.parametrize("annotation", [int, str, dict[str, Any], list[int], Any, "unknown", None, int | None, bytes])
def test_what_json_gives_back_by_itself_is_left_alone(annotation: Any) -> None:
    assert conversion.reader_of(annotation) is None


@pytest.mark.parametrize(
    ("annotation", "value", "path"),
    [
        (Colour, "green", "x"),
        (UUID, "no", "x"),
        (UUID, 7, "x"),
        (Decimal, "a", "x"),
        (date, "2026-13-01", "x"),
        (list[Colour], ["red", "green"], "x[1]"),
        (list[Colour], "red", "x"),
        (dict[str, Colour], {"a": "green"}, "x.a"),
        (tuple[int, Colour], [1, "red", 2], "x"),
        (tuple[int, Colour], ["1", "red"], "x[0]"),
        (tuple[bool, Colour], [1, "red"], "x[0]"),
        (tuple[int, ...], [True], "x[0]"),
        (Colour | None, "green", "x"),
        (Annotated[Colour | None, "why"], "green", "x"),
        (Tree, {}, "x.at"),
        (Tree, [], "x"),
        (list[Tree] | None, [{"name": 1}], "x[0].at"),
    ],
)
def test_what_does_not_fit_is_named_by_its_path(annotation: Any, value: Any, path: str) -> None:
    reader = conversion.reader_of(annotation)
    assert reader is not None
    with pytest.raises(InvalidField) as refused:
        reader(value, "x")
    assert refused.value.details["field"] == path


def test_what_nothing_can_say_is_refused_as_before() -> None:
    for value in ({"a": object()}, [float("nan")], {1: 2}):
        with pytest.raises(InvalidField):
            conversion.encode(value, "x")
    endless: list[Any] = []
    endless.append(endless)
    with pytest.raises(InvalidField):
        conversion.encode(endless, "x")
