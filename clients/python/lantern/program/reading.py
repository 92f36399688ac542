"""The check of workflow code before it runs: its source is read, its names are resolved, its calls are compared.

It follows the calls from the workflow function into the functions of the user's own files, but not into what is only
handed on: `ctx.step("mail", send)` does not make `send` workflow code.
"""

import ast
import builtins
import gc
import inspect
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

from lantern.program import guard, refusals
from lantern.program.failures import is_ours

_Function = ast.FunctionDef | ast.AsyncFunctionDef
_HANDED_ON = frozenset({"step", "side_effect"})
"""Methods of ctx that call what they are given outside of the workflow: arguments are no workflow code."""

_UNKNOWN: Any = object()

PARSES_MAX = 5
"""Tries at a file."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Finding:
    """A call that workflow code must not make."""

    # The file.
    file: str
    # The line in it.
    line: int
    # For people, the place included.
    message: str


@dataclass
class _Reader:
    """Reads functions, each once."""

    # Only functions of files below it are followed.
    root: Path
    # In the order of the walk.
    findings: list[Finding] = field(default_factory=list[Finding])
    # What was read already.
    read: set[tuple[str, int]] = field(default_factory=set[tuple[str, int]])

    def read_function(self, function: FunctionType) -> None:
        code = function.__code__
        place = (code.co_filename, code.co_firstlineno)
        if place in self.read:
            return
        self.read.add(place)
        node = _node_of(code.co_filename, code.co_firstlineno, code.co_name)
        if node is not None:
            names = _names_of(function)
            self._read_body(node, code.co_filename, names, _locals_of(node))

    def _read_body(self, node: _Function, file: str, names: Mapping[str, Any], local: Mapping[str, Any]) -> None:
        """`local`: what is bound in the function itself: nested functions as their nodes, the rest unknown."""
        called: set[str] = set()
        for each in _own_nodes(node):
            if isinstance(each, ast.Call):
                self._read_call(each, file, names, local)
                if isinstance(each.func, ast.Name):
                    called.add(each.func.id)
            elif isinstance(each, ast.Attribute | ast.Name) and _resolve(each, names, local) is os.environ:
                self._found(file, each.lineno, "os.environ", refusals.ENVIRONMENT)
        for name in sorted(called):
            inner = local.get(name)
            if isinstance(inner, _Function) and (file, inner.lineno) not in self.read:
                self.read.add((file, inner.lineno))
                # What is bound around it hides globals of the same name from it as well.
                self._read_body(inner, file, names, {**local, **_locals_of(inner)})

    def _read_call(self, call: ast.Call, file: str, names: Mapping[str, Any], local: Mapping[str, Any]) -> None:
        target = _resolve(call.func, names, local)
        if target is _UNKNOWN:
            return
        original = guard.original_of(target)
        try:
            found = _forbidden().get(original)
        except TypeError:  # nothing that can be looked up
            return
        if found is not None:
            what, why, always = found
            if always or not (call.args or call.keywords):
                self._found(file, call.lineno, what, why)
        elif isinstance(original, FunctionType) and self._is_own(original):
            self.read_function(original)

    def _is_own(self, function: FunctionType) -> bool:
        file = function.__code__.co_filename
        path = Path(file)
        return path.is_relative_to(self.root) and "site-packages" not in path.parts and not is_ours(file)

    def _found(self, file: str, line: int, what: str, why: str) -> None:
        self.findings.append(Finding(file=file, line=line, message=refusals.message_of(what, why, f"{file}:{line}")))


def findings_in(function: Callable[..., Any], root: Path) -> list[Finding]:
    """What a workflow function, or a function of the files below `root` that it calls, must not call; in order."""
    reader = _Reader(root=root)
    if isinstance(function, FunctionType):
        reader.read_function(inspect.unwrap(function))
    return reader.findings


@lru_cache(maxsize=1)
def _forbidden() -> Mapping[Any, tuple[str, str, bool]]:
    """By function: its name, why it is refused, and whether with arguments as well."""
    found: dict[Any, tuple[str, str, bool]] = {}
    for table, always in ((refusals.FUNCTIONS, True), (refusals.WITHOUT_ARGUMENTS, False)):
        for module, functions in table.items():
            for name, why in functions.items():
                if hasattr(module, name):
                    found[guard.original_of(getattr(module, name))] = (f"{module.__name__}.{name}", why, always)
    for function, why in refusals.BY_SOURCE.items():
        found[function] = (getattr(function, "__qualname__", str(function)), why, True)
    found[open] = ("open", refusals.FILES, True)
    found[input] = ("input", refusals.NETWORK, True)
    for module, name, why in _of_modules():
        found[getattr(module, name)] = (f"{module.__name__}.{name}", why, True)
    return found


def _of_modules() -> Iterator[tuple[ModuleType, str, str]]:
    """What is named by its module and looked up only where that is loaded."""
    for module_name, functions, why in (
        ("subprocess", "run call check_call check_output Popen getoutput getstatusoutput", refusals.PROCESSES),
        ("os", "system popen fork listdir scandir walk remove mkdir makedirs rename", refusals.FILES),
        ("socket", "socket create_connection getaddrinfo gethostbyname", refusals.NETWORK),
        ("urllib.request", "urlopen", refusals.NETWORK),
        ("_thread", "start_new_thread", refusals.THREADS),
        ("concurrent.futures", "ThreadPoolExecutor ProcessPoolExecutor", refusals.THREADS),
        ("requests", "get post put delete patch head request Session", refusals.NETWORK),
        ("httpx", "get post put delete patch head request Client AsyncClient", refusals.NETWORK),
        ("aiohttp", "ClientSession request", refusals.NETWORK),
    ):
        module = sys.modules.get(module_name)
        if module is not None:
            yield from ((module, name, why) for name in functions.split() if name in vars(module))


def _parse(source: bytes, file: str) -> ast.Module:
    """Parses with the collector held: CPython 3.11 miscounts its depth (SystemError) where a collection runs code.

    See CPython's issue 106905.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        return ast.parse(source, file)
    finally:
        if was_enabled:
            gc.enable()


@lru_cache(maxsize=256)
def functions_of(file: str) -> Mapping[tuple[int, str], _Function]:
    """All functions of a file, by first line (a decorator's, where there is one) and name; none without source."""
    try:
        tree = _parsed(Path(file).read_bytes(), file)
    except (OSError, SyntaxError, ValueError):
        return {}
    return {
        (min([node.lineno, *(each.lineno for each in node.decorator_list)]), node.name): node
        for node in ast.walk(tree)
        if isinstance(node, _Function)
    }


def _parsed(source: bytes, file: str) -> ast.Module:
    """As `_parse`, again where another thread parsed meanwhile (a traceback does), which miscounts as well."""
    for _ in range(PARSES_MAX - 1):
        with suppress(SystemError):
            return _parse(source, file)
    return _parse(source, file)


def _node_of(file: str, line: int, name: str) -> _Function | None:
    return functions_of(file).get((line, name))


def _names_of(function: FunctionType) -> Mapping[str, Any]:
    """What the free names of a function are bound to: globals and closure, over the builtins."""
    names = {**vars(builtins), **function.__globals__}
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        try:
            names[name] = cell.cell_contents
        except ValueError:  # not bound yet
            names[name] = _UNKNOWN
    return names


def _own_nodes(function: _Function) -> Iterator[ast.AST]:
    """All nodes that run when the function runs: not those of nested functions, nor what is handed on to steps."""
    stack: list[ast.AST] = [*reversed(function.body)]
    while stack:
        node = stack.pop()
        yield node
        if isinstance(node, _Function | ast.ClassDef | ast.Lambda):
            continue
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _HANDED_ON:
            # The arguments themselves are evaluated here; functions among them are not called here.
            values = [*node.args, *(keyword.value for keyword in node.keywords)]
            stack.extend(reversed([node.func, *(each for each in values if not isinstance(each, ast.Lambda))]))
            continue
        stack.extend(reversed(list(ast.iter_child_nodes(node))))


def _locals_of(function: _Function) -> Mapping[str, Any]:
    """What is bound in a function: nested functions to their nodes, imports to their modules, the rest to unknown."""
    arguments = function.args
    every = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs, arguments.vararg, arguments.kwarg]
    bound: dict[str, Any] = {each.arg: _UNKNOWN for each in every if each is not None}
    elsewhere: set[str] = set()
    stack: list[ast.AST] = list(function.body)
    while stack:
        node = stack.pop()
        if isinstance(node, _Function | ast.ClassDef):
            bound[node.name] = node if isinstance(node, _Function) else _UNKNOWN
            continue
        if isinstance(node, ast.Global | ast.Nonlocal):
            elsewhere.update(node.names)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            bound[node.id] = _UNKNOWN
        elif isinstance(node, ast.ExceptHandler) and node.name:
            bound[node.name] = _UNKNOWN
        elif isinstance(node, ast.Import):
            bound.update(_imported(node))
        elif isinstance(node, ast.ImportFrom):
            bound.update(_imported_from(node))
        if not isinstance(node, ast.Lambda):
            stack.extend(ast.iter_child_nodes(node))
    return {name: value for name, value in bound.items() if name not in elsewhere}


def _imported(node: ast.Import) -> Iterator[tuple[str, Any]]:
    for alias in node.names:
        name = alias.asname or alias.name.split(".")[0]
        yield name, sys.modules.get(alias.name if alias.asname else name, _UNKNOWN)


def _imported_from(node: ast.ImportFrom) -> Iterator[tuple[str, Any]]:
    module = sys.modules.get(node.module or "") if not node.level else None
    for alias in node.names:
        yield alias.asname or alias.name, vars(module).get(alias.name, _UNKNOWN) if module else _UNKNOWN


def _resolve(node: ast.expr, names: Mapping[str, Any], local: Mapping[str, Any]) -> Any:
    """What an expression of names and attributes stands for; unknown where only running could tell."""
    if isinstance(node, ast.Name):
        return local[node.id] if node.id in local else names.get(node.id, _UNKNOWN)
    if isinstance(node, ast.Attribute):
        value = _resolve(node.value, names, local)
        if isinstance(value, ModuleType):
            return vars(value).get(node.attr, _UNKNOWN)
        if isinstance(value, type):
            return getattr(value, node.attr, _UNKNOWN)
    return _UNKNOWN
