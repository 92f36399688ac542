"""Expressions in CEL (Common Expression Language), and JSON templates with such expressions in their texts.

This is the one place that knows the library (`common-expression-language`). Values in and out are those of JSON.
"""

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

import cel

from lantern_kernel import reasons
from lantern_kernel.bounds import JSON_DEPTH_MAX
from lantern_kernel.errors import InvalidField, LanternError

_OPEN, _CLOSE = "{{", "}}"
_SHOWN_CHARACTERS_MAX = 120


class Expression:
    """One expression, compiled.

    Attributes:
        text: As given.
        variables: The names that stand in it, those that it binds itself (`x.map(i, i + 1)`) among them.
    """

    def __init__(self, text: str, field: str = "expression") -> None:
        self.text = text
        try:
            self._program: Any = cel.compile(text)  # pyright: ignore[reportUnknownMemberType] - it has no types
        except ValueError as error:
            raise InvalidField(
                field, f"{_shown(text)}: {_first_line(error)}", reason=reasons.INVALID_EXPRESSION
            ) from None
        self.variables: frozenset[str] = frozenset(self._program.variables())

    def evaluate(self, values: Mapping[str, Any]) -> Any:
        """Its value, one of JSON's.

        Raises:
            LanternError: EXPRESSION_FAILED, with what is missing or does not fit.
        """
        try:
            # What it does not ask for is not converted for it.
            value: Any = self._program.execute({name: values[name] for name in self.variables if name in values})
        except (KeyError, IndexError) as error:
            raise self._failed(f"nothing is there: {_missing(error)}") from None
        except (ValueError, TypeError, RuntimeError, ArithmeticError) as error:
            raise self._failed(_first_line(error)) from None
        return self._json(value, 0)

    def _json(self, value: Any, depth: int) -> Any:
        if depth > JSON_DEPTH_MAX:
            raise self._failed(f"its value is nested more than {JSON_DEPTH_MAX} deep")
        if value is None or isinstance(value, bool | int | str):
            return value
        if isinstance(value, float):
            if math.isfinite(value):
                return value
            raise self._failed(f"its value {value} is nothing that JSON can say")
        if isinstance(value, list | tuple):
            items: Sequence[Any] = value
            return [self._json(each, depth + 1) for each in items]
        if isinstance(value, dict):
            members: Mapping[Any, Any] = value
            if all(isinstance(name, str) for name in members):
                # The library gives the members in an order that differs each time.
                return {name: self._json(members[name], depth + 1) for name in sorted(members)}
        raise self._failed(f"its value, a {type(value).__name__}, is nothing that JSON can say")

    def _failed(self, why: str) -> LanternError:
        return LanternError(reasons.EXPRESSION_FAILED, f"{_shown(self.text)}: {why}", expression=_shown(self.text))


class Template:
    """A JSON value whose texts may hold `{{ expression }}`; rendered once, what is inserted is never looked at again.

    A text that is one expression and nothing else stands for its value, whatever that is; in any other text a value
    that is no text is inserted as JSON.
    """

    def __init__(self, value: Any, field: str = "template") -> None:
        self._compiled = _compile(value, field)
        self.variables = frozenset(_variables(self._compiled))

    def render(self, values: Mapping[str, Any]) -> Any:
        """The value; raises as `Expression.evaluate`."""
        return _render(self._compiled, values)


class _Text:
    """A text with expressions in it: every second part is one."""

    def __init__(self, parts: Sequence[str | Expression]) -> None:
        self.parts = parts

    def render(self, values: Mapping[str, Any]) -> Any:
        if len(self.parts) == 1 and isinstance(self.parts[0], Expression):
            return self.parts[0].evaluate(values)
        return "".join(part if isinstance(part, str) else _inserted(part.evaluate(values)) for part in self.parts)


def compile_expression(text: str, field: str = "expression") -> Expression:
    """Compiles an expression; InvalidField with INVALID_EXPRESSION, naming `field`, where it is none."""
    return Expression(text, field)


def compile_template(value: Any, field: str = "template") -> Template:
    """Compiles a template; InvalidField with INVALID_EXPRESSION, naming the text in `field`, where one is wrong."""
    return Template(value, field)


def _compile(value: Any, field: str) -> Any:
    if isinstance(value, str):
        return _compile_text(value, field)
    if isinstance(value, list):
        items: Sequence[Any] = value
        return [_compile(each, f"{field}[{at}]") for at, each in enumerate(items)]
    if isinstance(value, dict):
        members: Mapping[str, Any] = value
        return {name: _compile(each, f"{field}.{name}") for name, each in members.items()}
    return value


def _compile_text(text: str, field: str) -> Any:
    parts: list[str | Expression] = []
    at = 0
    while (start := text.find(_OPEN, at)) >= 0:
        end = _end_of(text, start + len(_OPEN))
        if end < 0:
            raise InvalidField(field, f"{_shown(text)}: {{{{ without }}}}", reason=reasons.INVALID_EXPRESSION)
        if start > at:
            parts.append(text[at:start])
        parts.append(Expression(text[start + len(_OPEN) : end].strip(), field))
        at = end + len(_CLOSE)
    if not parts:
        return text
    if at < len(text):
        parts.append(text[at:])
    return _Text(parts)


def _end_of(text: str, at: int) -> int:
    """Where the expression that begins there ends: braces and quotes inside of it are its own. -1 for nowhere."""
    depth, quote = 0, ""
    while at < len(text):
        character = text[at]
        if quote:
            if character == "\\":
                at += 1
            elif character == quote:
                quote = ""
        elif character in "'\"":
            quote = character
        elif character == "{":
            depth += 1
        elif character == "}":
            if depth == 0:
                return at if text.startswith(_CLOSE, at) else -1
            depth -= 1
        at += 1
    return -1


def _variables(compiled: Any) -> "set[str]":
    if isinstance(compiled, _Text):
        return {name for part in compiled.parts if isinstance(part, Expression) for name in part.variables}
    if isinstance(compiled, dict):
        members: Mapping[str, Any] = compiled
        compiled = list(members.values())
    if isinstance(compiled, list):
        items: Sequence[Any] = compiled
        return {name for each in items for name in _variables(each)}
    return set()


def _render(compiled: Any, values: Mapping[str, Any]) -> Any:
    if isinstance(compiled, _Text):
        return compiled.render(values)
    if isinstance(compiled, list):
        items: Sequence[Any] = compiled
        return [_render(each, values) for each in items]
    if isinstance(compiled, dict):
        members: Mapping[str, Any] = compiled
        return {name: _render(each, values) for name, each in members.items()}
    return compiled


def _inserted(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _missing(error: Exception) -> str:
    return repr(error.args[0]) if isinstance(error, KeyError) and error.args else str(error)


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


def _shown(text: str) -> str:
    return text if len(text) <= _SHOWN_CHARACTERS_MAX else text[: _SHOWN_CHARACTERS_MAX - 3] + "..."
