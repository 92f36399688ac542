"""What the data of each type of node and the settings of a graph may hold, as tables of checks."""

import difflib
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from lantern_kernel.errors import InvalidField
from lantern_kernel.graph import definition as types
from lantern_kernel.graph.compiled import retry_policy
from lantern_kernel.graph.definition import Node
from lantern_kernel.graph.expressions import compile_expression, compile_template
from lantern_kernel.graph.faults import Fault, at_node, pointer
from lantern_kernel.names import USER_ID

VARIABLES = frozenset({"input", "steps", "item", "index", "iteration", "run"})

PROVIDERS = ("anthropic", "openai")
METHODS = ("DELETE", "GET", "HEAD", "PATCH", "POST", "PUT")

CONCURRENCY_MAX = 100
ITERATIONS_MAX = 500
WAIT_MS_MAX = 366 * 24 * 3600 * 1000

Check = Callable[[Any], "str | None"]
"""What is wrong with a value; None for nothing."""

_BOUND = re.compile(r"\.(?:map|filter|all|exists|exists_one)\(\s*([A-Za-z_]\w*)\s*,")
_PLACE = re.compile(r"\{\{")


def whole(low: int, high: int) -> Check:
    """A whole number."""

    def check(value: Any) -> str | None:
        is_right = type(value) is int and low <= value <= high
        return None if is_right else f"is no whole number from {low} to {high}"

    return check


def one_of(*allowed: str) -> Check:
    """One of these texts."""
    return lambda value: None if value in allowed and isinstance(value, str) else f"is none of {', '.join(allowed)}"


def expression(value: Any, further: frozenset[str] = frozenset()) -> str | None:
    """An expression that compiles and names only what there is."""
    if not isinstance(value, str) or not value.strip():
        return "is no expression"
    try:
        compiled = compile_expression(value)
    except InvalidField as error:
        return error.message
    return _unknown_name(value, compiled.variables, further)


def template(value: Any) -> str | None:
    """A JSON value; expressions in its texts compile."""
    try:
        compiled = compile_template(value)
    except InvalidField as error:
        return error.message
    return _unknown_name(str(value), compiled.variables, frozenset())


def _unknown_name(text: str, names: frozenset[str], further: frozenset[str]) -> str | None:
    unknown = sorted(names - VARIABLES - further - frozenset(_BOUND.findall(text)))
    return f"names {unknown[0]!r}, which is none of {', '.join(sorted(VARIABLES | further))}" if unknown else None


def text(value: Any) -> str | None:
    """A text that is not empty, a template."""
    return "is no text" if not isinstance(value, str) or not value else template(value)


def known_text(*known: str) -> Check:
    """One of these texts, or a template that gives one."""

    def check(value: Any) -> str | None:
        return template(value) if isinstance(value, str) and _PLACE.search(value) else one_of(*known)(value)

    return check


def truth(value: Any) -> str | None:
    """True or false."""
    return None if isinstance(value, bool) else "is neither true nor false"


def wait(value: Any) -> str | None:
    """Milliseconds, or a template that gives them."""
    if isinstance(value, str) and _PLACE.search(value):
        return template(value)
    return whole(0, WAIT_MS_MAX)(value)


def _name(value: Any) -> str | None:
    if isinstance(value, str) and _PLACE.search(value):
        return template(value)
    return None if isinstance(value, str) and USER_ID.fullmatch(value) else "is no name"


def _given(value: Any) -> str | None:
    del value
    return None


_POLICY: Mapping[str, Check] = {
    # Looked at as a whole by `retry_policy`.
    "retry": _given,
    "timeoutMs": whole(1, WAIT_MS_MAX),
    "totalTimeoutMs": whole(1, WAIT_MS_MAX),
    "onUnknown": one_of("retry", "ask", "skip"),
    "sink": lambda value: None if isinstance(value, str) and USER_ID.fullmatch(value) else "is no name",
    "keyed": truth,
    "keyScope": one_of("run", "workflow"),
    "effects": one_of("outside", "none"),
}

_REQUIRED: Mapping[str, Mapping[str, Check]] = {
    types.TOOL: {"tool": text},
    types.CONNECTOR: {"connector": known_text("http"), "url": text},
    types.AI_STEP: {"model": text},
    types.SUBAGENT: {"agent": _name},
    types.APPROVAL: {"title": text},
    types.WAIT_SIGNAL: {"signal": _name},
    types.DELAY: {"ms": wait},
    types.CONDITION: {"expression": expression},
    types.SWITCH: {"expression": expression},
    types.MAP: {"items": expression},
}

_OPTIONAL: Mapping[str, Mapping[str, Check]] = {
    types.END: {"output": template},
    types.TOOL: {"input": template, **_POLICY},
    types.CONNECTOR: {"method": known_text(*METHODS), "headers": template, "body": template, **_POLICY},
    types.AI_STEP: {
        "provider": known_text(*PROVIDERS),
        "prompt": template,
        "messages": template,
        "system": template,
        "maxTokens": template,
        "temperature": template,
        "parameters": template,
        **_POLICY,
    },
    types.SUBAGENT: {"input": template, "workflowId": text, "abandon": truth},
    types.APPROVAL: {"assignee": text, "data": template, "timeoutMs": whole(1, WAIT_MS_MAX)},
    types.WAIT_SIGNAL: {"timeoutMs": wait},
    types.TRANSFORM: {"expression": expression, "value": template},
    types.PARALLEL: {"maxConcurrency": whole(1, CONCURRENCY_MAX), "onError": one_of("fail", "continue")},
    types.LOOP: {"while": expression, "maxIterations": whole(1, ITERATIONS_MAX)},
    types.MAP: {"maxConcurrency": whole(1, CONCURRENCY_MAX)},
}

_EITHER: Mapping[str, tuple[str, str]] = {
    types.TRANSFORM: ("expression", "value"),
    types.AI_STEP: ("prompt", "messages"),
}
"""Exactly one of two members is needed."""

_COUNT = whole(0, 2**53)


def _shares(value: Any) -> str | None:
    is_right = isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= 1
    return None if is_right else "is no number from 0 to 1"


def _gated(value: Any) -> str | None:
    is_right = isinstance(value, list) and all(isinstance(each, str) and each in types.NODE_TYPES for each in value)
    return None if is_right else "is no list of types of nodes"


_SETTINGS: Mapping[str, Mapping[str, Check]] = {
    "anomalies": {
        "visits": _COUNT,
        "steps": _COUNT,
        "retries": _COUNT,
        "costMicroUsd": _COUNT,
        "tokens": _COUNT,
        "action": one_of("note", "park", "fail"),
    },
    "confidence": {
        "threshold": _shares,
        "types": _gated,
        "score": lambda value: expression(value, frozenset({"output"})),
    },
}


def faults_of_data(node: Node) -> Iterator[Fault]:
    """What is wrong with the data of a node of a known type."""
    required, optional = _REQUIRED.get(node.type, {}), _OPTIONAL.get(node.type, {})
    for name in required:
        if name not in node.data:
            yield Fault(path=at_node(node, name), code="missing_data", message=f"{name} is required")
    yield from _faults_of_members(at_node(node, "").removesuffix("/"), node.data, {**required, **optional})
    if node.type in _EITHER:
        first, second = _EITHER[node.type]
        if (first in node.data) == (second in node.data):
            message = f"exactly one of {first} and {second} is required"
            yield Fault(path=at_node(node, "").removesuffix("/"), code="either_or", message=message)
    if node.type in types.OUTSIDE:
        try:
            retry_policy(node)
        except InvalidField as error:
            yield Fault(path=at_node(node, "retry"), code="bad_data", message=error.message)


def faults_of_settings(settings: Mapping[str, Any]) -> Iterator[Fault]:
    """What is wrong with the settings of a graph."""
    known: dict[str, Check] = {"maxConcurrency": whole(1, CONCURRENCY_MAX), **dict.fromkeys(_SETTINGS, _object)}
    yield from _faults_of_members("/settings", settings, known)
    for name, members in _SETTINGS.items():
        if isinstance(settings.get(name), dict):
            yield from _faults_of_members(pointer("settings", name), settings[name], members)
    gate: Any = settings.get("confidence")
    if isinstance(gate, dict):
        for name in ("threshold", "types"):
            if name not in gate:
                path = pointer("settings", "confidence", name)
                yield Fault(path=path, code="missing_data", message=f"{name} is required: without it nothing is gated")


def _object(value: Any) -> str | None:
    return None if isinstance(value, dict) else "is no object"


def _faults_of_members(at: str, data: Mapping[str, Any], known: Mapping[str, Check]) -> Iterator[Fault]:
    for name, value in data.items():
        path = at + pointer(name)
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"there are: {', '.join(sorted(known)) or 'none'}"
            yield Fault(path=path, code="unknown_data", message=f"{name!r} means nothing here; {hint}")
            continue
        wrong = known[name](value)
        if wrong is not None:
            yield Fault(path=path, code="bad_data", message=f"{name} {wrong}")
