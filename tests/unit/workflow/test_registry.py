"""Goal: modules of workflows load by name and by path, faults are told clearly, digests name the content alone.

Method: modules are written into a temporary folder; sys.path, sys.modules and the working directory are put back.
"""

import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import lantern
from lantern.registry import LoadError, load_module, load_modules, load_tools
from lantern_kernel.errors import InvalidField

WORKFLOW = """
import lantern

@lantern.workflow(name="{name}")
async def run_it(ctx, order):
    return 1
"""


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    before = set(sys.modules)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    monkeypatch.chdir(tmp_path)
    yield tmp_path
    for name in set(sys.modules) - before:
        del sys.modules[name]


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def make_package(place: Path, root: str = ".") -> Path:
    folder = place / root / "shop"
    write(folder / "__init__.py", "")
    write(folder / "prices.py", "PRICE = 3\n")
    return write(folder / "orders.py", "from . import prices\n" + WORKFLOW.format(name="order"))


def test_by_dotted_name_from_the_working_directory(place: Path) -> None:
    make_package(place)
    (definition,) = load_module("shop.orders")
    assert (definition.name, definition.function.__module__) == ("order", "shop.orders")
    assert (definition.takes_input, definition.root) == (True, place.resolve())
    assert load_module("shop.orders")[0].function is definition.function


def test_by_path_inside_a_package_it_is_imported_as_part_of_it(place: Path) -> None:
    file = make_package(place, "deep/down")
    (definition,) = load_module(str(file))
    assert definition.function.__module__ == "shop.orders"
    assert definition.root == (place / "deep/down").resolve()


def test_by_path_of_a_lone_file(place: Path) -> None:
    write(place / "lone_file.py", WORKFLOW.format(name="lone"))
    write(place / "other_file.py", "1 / 0")
    (definition,) = load_module("./lone_file.py")
    first = definition.digest
    write(place / "other_file.py", "2 / 0")
    assert load_module("lone_file.py")[0].digest == first, "a neighbour is nobody's business"


def test_a_module_offers_what_is_below_it_and_what_it_imports(place: Path) -> None:
    make_package(place)
    write(place / "shop/__init__.py", "from . import orders\n")
    write(
        place / "gathered.py", "from shop.orders import run_it\n" + WORKFLOW.format(name="own").replace("run_it", "x")
    )
    assert [definition.name for definition in load_module("shop")] == ["order"]
    assert sorted(definition.name for definition in load_module("gathered")) == ["order", "own"]
    assert sorted(load_modules(["shop", "gathered", "shop.orders"])) == ["order", "own"]


def test_the_digest_is_over_names_and_bytes_alone(place: Path) -> None:
    file = make_package(place, "one")
    shutil.copytree(place / "one", place / "two")
    digests: list[str] = []
    for root in ("one", "two"):
        digests.append(load_module(f"{root}/shop/orders.py")[0].digest)
        _forget("shop")
    assert digests[0] == digests[1]
    assert len(digests[0]) == 64
    write(place / "one/shop/prices.py", "PRICE = 4\n")
    assert load_module(str(file))[0].digest != digests[0], "a sibling counts"
    _forget("shop")
    write(place / "one/shop/prices.py", "PRICE = 3\n")
    assert load_module(str(file))[0].digest == digests[0]
    _forget("shop")
    (place / "one/shop/prices.py").rename(place / "one/shop/costs.py")
    write(file, file.read_text().replace("prices", "costs"))
    assert load_module(str(file))[0].digest != digests[0]


def _forget(package: str) -> None:
    """As another process: neither the modules nor their folder are known."""
    for name in [name for name in sys.modules if name.split(".")[0] == package]:
        del sys.modules[name]
    del sys.path[0]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("import lantern\n", "holds no workflow"),
        ("def broken(:\n", r"faulty_module\.py:1: invalid syntax"),
        ("\n1 / 0\n", r"ZeroDivisionError: division by zero \(.*faulty_module\.py:2\)"),
        ("import no_such_package_here\n", r"imports 'no_such_package_here', which is not installed \(.*:1\)"),
        ("raise SystemExit(2)\n", "SystemExit: 2"),
        (
            WORKFLOW.format(name="twice") + WORKFLOW.format(name="twice"),
            r"two workflows are named 'twice': .* \(line 4\) and .* \(line 10\)",
        ),
        ("import lantern\n@lantern.workflow\ndef plain(ctx): ...\n", "`async def` function"),
        ("import lantern\n@lantern.workflow\nasync def plain(): ...\n", "takes none"),
        (
            "import lantern\n@lantern.workflow(name='a b')\nasync def plain(ctx): ...\n",
            r"workflow name: 'a b'.*faulty_module\.py:2\)$",
        ),
    ],
)
def test_faults_are_told(place: Path, text: str, message: str) -> None:
    write(place / "faulty_module.py", text)
    for spec in ("faulty_module", "faulty_module.py"):
        with pytest.raises(LoadError, match=message):
            load_module(spec)


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("no_such_module", "no module 'no_such_module'"),
        ("shop.no_such", r"no module 'shop\.no_such'"),
        ("no/such.py", "no such file"),
        ("shop/", "no such file"),
        ("notes/text.txt", "no .py file"),
        ("a b", "neither a module name"),
        ("", "neither a module name"),
        ("..shop", "neither a module name"),
        ("odd-name.py", "'odd-name' is no name"),
        ("json.py", "already taken"),
        ("sys", "has no .py file|holds no workflow"),
    ],
)
def test_what_cannot_be_found_is_told(place: Path, spec: str, message: str) -> None:
    make_package(place)
    for name in ("notes/text.txt", "odd-name.py", "json.py"):
        write(place / name, "")
    with pytest.raises(LoadError, match=message):
        load_module(spec)


def test_a_module_that_is_mended_can_be_loaded(place: Path) -> None:
    write(place / "mended.py", WORKFLOW.format(name="mended") + "1 / 0\n")
    with pytest.raises(LoadError):
        load_module("mended")
    write(place / "mended.py", WORKFLOW.format(name="mended"))
    assert [definition.name for definition in load_module("mended")] == ["mended"]


def test_two_modules_with_one_name(place: Path) -> None:
    write(place / "first_one.py", WORKFLOW.format(name="same"))
    write(place / "second_one.py", WORKFLOW.format(name="same"))
    with pytest.raises(LoadError, match=r"two workflows are named 'same': first_one\.run_it .* second_one\.run_it"):
        load_modules(["first_one", "second_one"])


TOOL = """
import lantern

@lantern.tool(name="{name}")
def do_it(*, amount: int) -> int:
    return amount
"""


def test_tools_of_modules_are_loaded_by_name(place: Path) -> None:
    write(place / "tools_only.py", TOOL.format(name="charge"))
    write(
        place / "both.py", WORKFLOW.format(name="flow") + TOOL.format(name="reserve") + "from tools_only import do_it\n"
    )
    assert load_module("tools_only") == [], "tools alone are enough"
    assert [definition.name for definition in load_module("both")] == ["flow"]
    tools = load_tools(["both"])
    assert sorted(tools) == ["charge", "reserve"], "also what is imported into it by name"
    assert tools["charge"].function(amount=3) == 3


def test_two_tools_of_one_name(place: Path) -> None:
    write(place / "tool_one.py", TOOL.format(name="same_tool"))
    write(place / "tool_two.py", TOOL.format(name="same_tool"))
    with pytest.raises(LoadError, match=r"two tools are named 'same_tool': tool_one\.do_it .* tool_two\.do_it"):
        load_tools(["tool_one", "tool_two"])


def test_a_tool_is_called_by_keyword() -> None:
    def by_place(amount: int, /) -> int:
        return amount

    with pytest.raises(TypeError, match="takes amount: int by its place"):
        lantern.tool(by_place)
    with pytest.raises(InvalidField):
        lantern.tool(name="no|pipe")(test_two_tools_of_one_name)


def test_a_workflow_stays_a_function() -> None:
    @lantern.workflow
    async def bare(ctx: Any) -> int:
        return 1

    with pytest.raises(StopIteration) as caught:
        bare(None).send(None)
    assert caught.value.value == 1
    with pytest.raises(InvalidField):
        lantern.workflow(name="no|pipe")(bare)


def test_importing_lantern_is_light_and_its_names_are_there() -> None:
    check = (
        "import sys, lantern, lantern.api\n"
        "assert not {'asyncio', 'lantern.program', 'lantern.registry', 'grpc'} & set(sys.modules)\n"
        "assert callable(lantern.workflow) and lantern.RetryPolicy().max_attempts == 1\n"
        "assert all(getattr(lantern, name) is not None for name in dir(lantern) if not name.startswith('__'))\n"
    )
    subprocess.run([sys.executable, "-c", check], check=True)
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        lantern.nonsense  # noqa: B018 - the look itself raises  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType]
