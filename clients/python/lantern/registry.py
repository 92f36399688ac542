"""Workflow definitions and tools: how modules of users are found, loaded and named by their content."""

import importlib
import inspect
import sys
import traceback
from collections.abc import Callable, Coroutine, Iterable
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar, overload

from lantern.program import guard
from lantern.program.failures import is_ours, part_of_stdlib
from lantern.program.reading import findings_in
from lantern_kernel import names

WorkflowFunction = Callable[..., Coroutine[Any, Any, Any]]
_F = TypeVar("_F", bound=WorkflowFunction)


@dataclass(frozen=True, kw_only=True, slots=True)
class Definition:
    """One workflow, as loaded."""

    # The agent name.
    name: str
    # `async def f(ctx)` or `async def f(ctx, input)`.
    function: WorkflowFunction
    # Whether it takes the run's input.
    takes_input: bool
    # SHA-256 (hex) over its module's file and, in a package, the .py files beside it: the agent digest.
    digest: str
    # The folder that source positions are given relative to.
    root: Path
    # Whether clocks, chance and the outside are refused in it.
    is_guarded: bool = True


@dataclass(frozen=True, kw_only=True, slots=True)
class Tool:
    """A function that tool nodes of graphs call, as loaded."""

    # What tool nodes name it by.
    name: str
    # Async or not; takes the members of the node's input as keyword arguments.
    function: Callable[..., Any]


class LoadError(Exception):
    """A module of workflows or tools cannot be used; the message says which, and why."""


@dataclass(frozen=True, kw_only=True, slots=True)
class _Mark:
    """What the decorator notes of a function."""

    # The agent name.
    name: str
    # The function.
    function: WorkflowFunction
    # As of Definition.
    is_guarded: bool


_marks: list[_Mark] = []
"""All workflows that were decorated in this process, in order."""

_tools: list[Tool] = []
"""All tools that were."""


@overload
def workflow(function: _F, /) -> _F: ...
@overload
def workflow(*, name: str = "", guarded: bool = True) -> Callable[[_F], _F]: ...
def workflow(function: WorkflowFunction | None = None, /, *, name: str = "", guarded: bool = True) -> Any:
    """Marks an async function as a workflow: `@lantern.workflow(name="order")`, or just `@lantern.workflow`.

    The function takes `ctx` and, if it wants it, the run's input. It stays what it is; it can be called and tested.

    Args:
        function: The function.
        name: The agent's name; by default the function's.
        guarded: False lets its code read clocks, chance and the outside; then only you know whether it can be replayed.

    Raises:
        TypeError: It is not async, or takes no argument.
        InvalidField: The name is no user-made id.
    """

    def mark(marked: WorkflowFunction) -> WorkflowFunction:
        if not inspect.iscoroutinefunction(marked):
            raise TypeError(f"a workflow is an `async def` function; {marked!r} is not")
        if _positional(marked) < 1:
            raise TypeError(f"a workflow takes ctx as its first argument; {marked.__qualname__} takes none")
        guard.install()
        checked = names.check_user_id("workflow name", name or marked.__name__)
        marked.__lantern_agent__ = checked  # pyright: ignore[reportFunctionMemberAccess] - read by `waits.agent_name_of`
        _marks.append(_Mark(name=checked, function=marked, is_guarded=guarded))
        return marked

    return mark if function is None else mark(function)


_T = TypeVar("_T", bound=Callable[..., Any])


@overload
def tool(function: _T, /) -> _T: ...
@overload
def tool(*, name: str = "") -> Callable[[_T], _T]: ...
def tool(function: Callable[..., Any] | None = None, /, *, name: str = "") -> Any:
    """Marks a function as a tool for graphs: `@lantern.tool(name="reserve")`, or just `@lantern.tool`.

    A tool node calls it with the members of its input as keyword arguments, in a thread where it is not async;
    `lantern.step_info()` in it tells the idempotency key. What it returns, JSON, is the node's output. It stays what it
    is; it can be called and tested.

    Args:
        function: The function.
        name: What tool nodes name it by; by default the function's name.

    Raises:
        TypeError: It has parameters that cannot be given by name.
        InvalidField: The name is no user-made id.
    """

    def mark(marked: Callable[..., Any]) -> Callable[..., Any]:
        by_place = {inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.VAR_POSITIONAL}
        for parameter in inspect.signature(marked).parameters.values():
            if parameter.kind in by_place:
                raise TypeError(f"a tool is called by keyword; {marked.__qualname__} takes {parameter} by its place")
        _tools.append(Tool(name=names.check_user_id("tool name", name or marked.__name__), function=marked))
        return marked

    return mark if function is None else mark(function)


def _positional(function: Callable[..., Any]) -> int:
    """How many positional arguments a function takes, 2 for more."""
    parameters = inspect.signature(function).parameters.values()
    if any(parameter.kind is inspect.Parameter.VAR_POSITIONAL for parameter in parameters):
        return 2
    kinds = {inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD}
    return min(2, sum(parameter.kind in kinds for parameter in parameters))


def define(function: WorkflowFunction, *, name: str = "", guarded: bool = True) -> Definition:
    """The definition of one function, by its module's file; for tests and for whoever has the function at hand.

    Raises:
        LoadError: It has no file, or its code calls what a guarded workflow must not.
    """
    guard.install()
    module = sys.modules[function.__module__]
    file = _file_of(module, function.__module__)
    root = _import_root(file)
    if guarded:
        findings = findings_in(function, root)
        if findings:
            lines = "".join(f"\n  {finding.message}" for finding in findings)
            raise LoadError(f"workflow {name or function.__name__} cannot be replayed:{lines}")
    return Definition(
        name=name or function.__name__,
        function=function,
        takes_input=_positional(function) > 1,
        digest=_digest(file),
        root=root,
        is_guarded=guarded,
    )


def definition_of(function: WorkflowFunction) -> Definition:
    """The definition of a function, under the name that it was marked with, or else its own."""
    for mark in reversed(_marks):
        if mark.function is function:
            return define(function, name=mark.name, guarded=mark.is_guarded)
    return define(function)


def load_module(spec: str) -> list[Definition]:
    """Imports a module and returns the workflows in it, in the order of their definition.

    A workflow is in a module if it is defined there, in a module below it, or imported into it by name.

    Args:
        spec: A dotted name (found from the working directory, too) or the path of a .py file. A file inside a package
            is imported as part of it, from the folder that the package is in.

    Raises:
        LoadError: It is not there, fails to import, holds neither workflow nor tool, or two workflows of one name.
    """
    module = _import(spec)
    found: dict[str, Definition] = {}
    for mark in _marks:
        if _is_in(module, mark.function):
            if mark.name in found and found[mark.name].function is not mark.function:
                raise LoadError(_two_of_one_name("workflows", mark.name, found[mark.name].function, mark.function))
            found[mark.name] = define(mark.function, name=mark.name, guarded=mark.is_guarded)
    if not found and not any(_is_in(module, tool.function) for tool in _tools):
        raise LoadError(
            f"{spec} holds no workflow or tool: mark an async function with @lantern.workflow(name=...)"
            " or a function with @lantern.tool(name=...)"
        )
    return list(found.values())


def load_tools(specs: Iterable[str]) -> dict[str, Tool]:
    """The tools in several modules by name, in a module as workflows are; LoadError also for a name taken twice."""
    found: dict[str, Tool] = {}
    for module in map(_import, specs):
        for tool in _tools:
            if not _is_in(module, tool.function):
                continue
            other = found.setdefault(tool.name, tool)
            if other.function is not tool.function:
                raise LoadError(_two_of_one_name("tools", tool.name, other.function, tool.function))
    return found


def _import(spec: str) -> ModuleType:
    return _import_file(spec) if _is_path(spec) else _import_name(spec, Path.cwd())


def _is_in(module: ModuleType, function: Callable[..., Any]) -> bool:
    """Whether a function is defined in a module, in one below it, or imported into it by name."""
    where = function.__module__
    if not _is_current(function):
        return False
    held = any(value is function for value in vars(module).values())
    return held or where == module.__name__ or where.startswith(module.__name__ + ".")


def _is_current(function: Callable[..., Any]) -> bool:
    """Whether its module is the one imported now, not an earlier attempt at importing it that failed."""
    module = sys.modules.get(function.__module__)
    return module is not None and getattr(function, "__globals__", None) is vars(module)


def load_modules(specs: Iterable[str]) -> dict[str, Definition]:
    """The workflows of several modules by name; raises LoadError as `load_module` does, and for a name taken twice."""
    found: dict[str, Definition] = {}
    for spec in specs:
        for definition in load_module(spec):
            other = found.setdefault(definition.name, definition)
            if other.function is not definition.function:
                raise LoadError(_two_of_one_name("workflows", definition.name, other.function, definition.function))
    return found


def _two_of_one_name(what: str, name: str, one: Callable[..., Any], other: Callable[..., Any]) -> str:
    places = " and ".join(
        f"{function.__module__}.{function.__qualname__} (line {function.__code__.co_firstlineno})"
        for function in (one, other)
    )
    return f"two {what} are named {name!r}: {places}"


def _is_path(spec: str) -> bool:
    return spec.endswith(".py") or "/" in spec or "\\" in spec


def _import_file(spec: str) -> ModuleType:
    file = Path(spec).resolve()
    if not file.is_file():
        raise LoadError(f"{spec}: there is no such file")
    if file.suffix != ".py":
        raise LoadError(f"{spec} is no .py file")
    root = _import_root(file)
    parts = file.relative_to(root).with_suffix("").parts
    if parts[-1] == "__init__":
        parts = parts[:-1]
    for part in parts:
        if not part.isidentifier():
            raise LoadError(f"{spec}: {part!r} is no name that Python can import; rename it")
    module = _import_name(".".join(parts), root, shown=spec)
    loaded = _file_of(module, spec)
    if loaded != file:
        raise LoadError(f"{spec}: the module name {module.__name__!r} is already taken by {loaded}; rename the file")
    return module


def _import_name(name: str, root: Path, *, shown: str = "") -> ModuleType:
    shown = shown or name
    if not name or not all(part.isidentifier() for part in name.split(".")):
        raise LoadError(f"{shown!r} is neither a module name such as shop.workflows nor the path of a .py file")
    if str(root) not in sys.path:
        sys.path.insert(0, str(root))
    importlib.invalidate_caches()
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is not None and (name == error.name or name.startswith(error.name + ".")):
            raise LoadError(f"{shown}: there is no module {error.name!r} (looked from {root})") from None
        raise LoadError(f"{shown}: it imports {error.name!r}, which is not installed{_where(error)}") from error
    except SyntaxError as error:
        raise LoadError(f"{shown}: {error.filename}:{error.lineno}: {error.msg}") from error
    except (Exception, SystemExit) as error:
        text = "".join(traceback.format_exception_only(error)).strip()
        raise LoadError(f"{shown}: importing it raised {text}{_where(error)}") from error


def _where(error: BaseException) -> str:
    """The last line of the user's in a traceback."""
    frames = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if not part_of_stdlib(frame.filename) and not is_ours(frame.filename)
    ]
    return f" ({frames[-1].filename}:{frames[-1].lineno})" if frames else ""


def _file_of(module: ModuleType, spec: str) -> Path:
    file = getattr(module, "__file__", None)
    if not file or not file.endswith(".py"):
        raise LoadError(f"{spec} has no .py file, so its version cannot be told")
    return Path(file).resolve()


def _import_root(file: Path) -> Path:
    """The folder from which a file is imported: the first one above it that is no package."""
    folder = file.parent
    while (folder / "__init__.py").is_file() and folder != folder.parent:
        folder = folder.parent
    return folder


def _digest(file: Path) -> str:
    """SHA-256 over (length, relative name, length, bytes) of the module's file and its siblings in a package.

    A file outside of packages stands for itself alone: what else lies in its folder is nobody's business.
    """
    root = _import_root(file)
    files = sorted(file.parent.glob("*.py")) if file.parent != root else [file]
    total = sha256(b"lantern.module.v1\0")
    for name, content in sorted((each.relative_to(root).as_posix().encode(), each.read_bytes()) for each in files):
        total.update(b"%d:%b%d:%b" % (len(name), name, len(content), content))
    return total.hexdigest()
