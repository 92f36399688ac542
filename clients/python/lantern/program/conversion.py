"""Between what JSON can say and the types that users annotate: dataclasses, enums, times, UUIDs, decimals."""

import dataclasses
import enum
import inspect
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from datetime import date, datetime
from decimal import Decimal, InvalidOperation
from typing import Any
from uuid import UUID
from weakref import WeakKeyDictionary

from lantern_kernel import json_bytes
from lantern_kernel.bounds import JSON_DEPTH_MAX
from lantern_kernel.errors import InvalidField

Reader = Callable[[Any, str], Any]
"""Makes a value of a type out of JSON; the second argument is the path for errors (InvalidField)."""

_FROM_TEXT: Mapping[type, Callable[[str], Any]] = {
    datetime: datetime.fromisoformat,
    date: date.fromisoformat,
    UUID: UUID,
    Decimal: Decimal,
}
_PLAIN: Mapping[Any, tuple[type, ...]] = {str: (str,), int: (int,), float: (int, float), bool: (bool,)}


@dataclasses.dataclass(frozen=True, slots=True)
class Signature:
    """How a function's arguments and result are read; None for what stays as JSON gives it back."""

    # By position; the last one stands for all further ones where `is_open`.
    arguments: Sequence[Reader | None]
    # Their names.
    names: Sequence[str]
    # Whether the last one is `*args`.
    is_open: bool
    # The result.
    result: Reader | None

    def read_argument(self, position: int, value: Any) -> Any:
        """The value of the argument at a position, from JSON."""
        at = min(position, len(self.arguments) - 1) if self.is_open else position
        reader = self.arguments[at] if at < len(self.arguments) else None
        return value if reader is None else reader(value, self.names[at])


_NOTHING = Signature(arguments=(), names=(), is_open=False, result=None)
_signatures: WeakKeyDictionary[Callable[..., Any], Signature] = WeakKeyDictionary()


def signature_of(function: Callable[..., Any]) -> Signature:
    """How the arguments and the result of a function are read, by its annotations."""
    if not getattr(function, "__annotations__", None):
        return _NOTHING
    try:
        known = _signatures.get(function)
    except TypeError:  # not to be referred to weakly
        return _signature(function)
    if known is None:
        known = _signatures[function] = _signature(function)
    return known


def read_result(value: Any, into: Any) -> Any:
    """A result made into what an annotation, or the annotation of a workflow function's result, says.

    Raises:
        InvalidField: It does not fit; `result` + path.
    """
    if into is None:
        return value
    reader = signature_of(into).result if inspect.isfunction(into) else reader_of(into)
    return value if reader is None else reader(value, "result")


def encode(value: Any, field: str) -> bytes:
    """JSON of a value that may hold dataclasses and the like; raises InvalidField naming the path."""
    try:
        return json_bytes.encode(value, field)
    except InvalidField:
        return json_bytes.encode(_to_json(value, 0), field)


def _to_json(value: Any, depth: int) -> Any:
    if depth > JSON_DEPTH_MAX:
        return value
    match value:
        case enum.Enum():
            return _to_json(value.value, depth + 1)
        case datetime() | date():
            return value.isoformat()
        case UUID() | Decimal():
            return str(value)
        case dict():
            return {key: _to_json(each, depth + 1) for key, each in value.items()}
        case list() | tuple():
            return [_to_json(each, depth + 1) for each in value]
        case _ if dataclasses.is_dataclass(value) and not isinstance(value, type):
            fields = dataclasses.fields(value)
            return {each.name: _to_json(getattr(value, each.name), depth + 1) for each in fields}
        case _:
            return value


def _signature(function: Callable[..., Any]) -> Signature:
    hints = _hints(function)
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        return _NOTHING
    kinds = {
        inspect.Parameter.POSITIONAL_ONLY,
        inspect.Parameter.POSITIONAL_OR_KEYWORD,
        inspect.Parameter.VAR_POSITIONAL,
    }
    positional = [each for each in parameters if each.kind in kinds]
    return Signature(
        arguments=tuple(reader_of(hints.get(each.name, Any)) for each in positional),
        names=tuple(each.name for each in positional),
        is_open=bool(positional) and positional[-1].kind is inspect.Parameter.VAR_POSITIONAL,
        result=reader_of(hints.get("return", Any)),
    )


def _hints(holder: Any) -> Mapping[str, Any]:
    try:
        return typing.get_type_hints(holder)
    except Exception:  # annotations name what is not there at run time; they are then of no use to us
        own: Mapping[str, Any] = getattr(holder, "__annotations__", {})
        return {name: each for name, each in own.items() if not isinstance(each, str)}


def reader_of(annotation: Any) -> Reader | None:
    """How a value of an annotated type is made out of JSON; None where it stays as JSON gives it back."""
    return _reader(annotation) if _is_rich(annotation, set()) else None


def _is_rich(annotation: Any, seen: set[Any]) -> bool:
    """Whether a type is, or holds, something that JSON does not give back by itself."""
    origin = typing.get_origin(annotation)
    if origin is not None:
        return origin is tuple or any(_is_rich(each, seen) for each in typing.get_args(annotation))
    if not isinstance(annotation, type):
        return False
    return annotation in _FROM_TEXT or issubclass(annotation, enum.Enum) or dataclasses.is_dataclass(annotation)


def _reader(annotation: Any) -> Reader:
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is typing.Annotated:
        return _reader(arguments[0])
    if origin in {typing.Union, types.UnionType}:
        return _union(arguments)
    if origin in {list, Sequence}:
        return _items(_reader(arguments[0]), list)
    if origin is tuple:
        if len(arguments) == 2 and arguments[1] is Ellipsis:
            return _items(_reader(arguments[0]), tuple)
        return _tuple([_reader(each) for each in arguments])
    if origin in {dict, Mapping}:
        return _members(_reader(arguments[1]))
    if annotation in _PLAIN:
        return _plain(annotation)
    if annotation is None or annotation is type(None):
        return _none
    if isinstance(annotation, type):
        if annotation in _FROM_TEXT:
            return _text(annotation)
        if issubclass(annotation, enum.Enum):
            return _enum(annotation)
        if dataclasses.is_dataclass(annotation):
            return _Dataclass(annotation)
    return _as_it_is


def _as_it_is(value: Any, path: str) -> Any:
    del path
    return value


def _none(value: Any, path: str) -> None:
    if value is not None:
        raise InvalidField(path, f"is a {_word(value)}, not null")


def _plain(wanted: type) -> Reader:
    accepted = _PLAIN[wanted]

    def read(value: Any, path: str) -> Any:
        if not isinstance(value, accepted) or (isinstance(value, bool) and wanted is not bool):
            raise InvalidField(path, f"is a {_word(value)}, not a {wanted.__name__}")
        return value

    return read


def _text(wanted: type) -> Reader:
    make = _FROM_TEXT[wanted]

    def read(value: Any, path: str) -> Any:
        if isinstance(value, wanted):
            return value
        if not isinstance(value, str):
            raise InvalidField(path, f"is a {_word(value)}, not a {wanted.__name__} as text")
        try:
            return make(value)
        except (ValueError, InvalidOperation):
            raise InvalidField(path, f"{value[:64]!r} is no {wanted.__name__}") from None

    return read


def _enum(wanted: type[enum.Enum]) -> Reader:
    def read(value: Any, path: str) -> Any:
        try:
            return wanted(value)
        except ValueError:
            known = ", ".join(repr(each.value) for each in wanted)
            raise InvalidField(path, f"{value!r} is none of {known}") from None

    return read


def _items(item: Reader, make: Callable[[list[Any]], Any]) -> Reader:
    def read(value: Any, path: str) -> Any:
        if not isinstance(value, list):
            raise InvalidField(path, f"is a {_word(value)}, not a list")
        return make([item(each, f"{path}[{at}]") for at, each in enumerate(value)])

    return read


def _tuple(items: Sequence[Reader]) -> Reader:
    def read(value: Any, path: str) -> Any:
        if not isinstance(value, list) or len(value) != len(items):
            raise InvalidField(path, f"is not a list of {len(items)}")
        return tuple(item(each, f"{path}[{at}]") for at, (item, each) in enumerate(zip(items, value, strict=True)))

    return read


def _members(member: Reader) -> Reader:
    def read(value: Any, path: str) -> Any:
        if not isinstance(value, dict):
            raise InvalidField(path, f"is a {_word(value)}, not an object")
        return {key: member(each, f"{path}.{key}") for key, each in value.items()}

    return read


def _union(arguments: Sequence[Any]) -> Reader:
    readers = [_reader(each) for each in arguments]

    def read(value: Any, path: str) -> Any:
        refusals: list[InvalidField] = []
        for reader in readers:
            try:
                return reader(value, path)
            except InvalidField as refusal:
                refusals.append(refusal)
        # The refusal from furthest inside says most about what was meant.
        raise max(refusals, key=lambda refusal: len(refusal.details.get("field", "")))

    return read


class _Dataclass:
    """Reads a dataclass; its fields are looked at when the first one is read, since it may hold itself."""

    def __init__(self, wanted: type) -> None:
        self._wanted: Any = wanted
        self._readers: Mapping[str, Reader] | None = None
        self._needed: frozenset[str] = frozenset()

    def __call__(self, value: Any, path: str) -> Any:
        if isinstance(value, self._wanted):
            return value
        if not isinstance(value, dict):
            raise InvalidField(path, f"is a {_word(value)}, not an object for {self._wanted.__name__}")
        readers = self._readers or self._look()
        for name in sorted(self._needed - value.keys()):
            raise InvalidField(f"{path}.{name}", "is missing")
        known = {name: readers[name](each, f"{path}.{name}") for name, each in value.items() if name in readers}
        return self._wanted(**known)

    def _look(self) -> Mapping[str, Reader]:
        hints = _hints(self._wanted)
        fields = [each for each in dataclasses.fields(self._wanted) if each.init]
        absent = dataclasses.MISSING
        self._needed = frozenset(
            each.name for each in fields if each.default is absent and each.default_factory is absent
        )
        self._readers = {each.name: _reader(hints.get(each.name, Any)) for each in fields}
        return self._readers


def _word(value: Any) -> str:
    return {dict: "object", type(None): "null", str: "text", list: "list"}.get(type(value), type(value).__name__)
