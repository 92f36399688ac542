"""Style as tests: sizes, names, and words that may not stand in a committed file.

Method: read every tracked or new file of the tree as git lists it; generated code is left out.
"""

import ast
import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
LINES_MAX = 500
FUNCTION_LINES_MAX = 70
DUMPING_GROUNDS = {"common", "util", "utils", "helpers", "misc", "base", "shared", "models", "types"}
GENERATED = ("clients/python/lantern/api/", "protos/third_party/", "requirements.lock")
# Written in parts so that this file does not hold them itself.
FORBIDDEN = [
    re.compile(
        "|".join(
            (
                "py" + r"pi\.org",
                "python" + r"hosted",
                "registry" + r"\.npmjs",
                "proxy" + r"\.golang",
                "repo1?" + r"\.maven",
            )
        )
    ),
    re.compile("deb" + r"\.debian|crates" + r"\.io"),
    re.compile(r"(^|[^A-Za-z0-9_.])/(work|farm)" + "/[a-z]"),
]


def tracked_files() -> list[Path]:
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    paths = (ROOT / line for line in sorted(set(listed.stdout.splitlines())) if not line.startswith(GENERATED))
    return [path for path in paths if path.is_file()]


FILES = tracked_files()
PYTHON = [path for path in FILES if path.suffix == ".py"]


def name(path: Path) -> str:
    return str(path.relative_to(ROOT))


def test_the_tree_is_seen():
    assert len(PYTHON) > 20


@pytest.mark.parametrize(
    "path", [p for p in FILES if p.suffix in {".py", ".go", ".ts", ".java", ".proto", ".sh"}], ids=name
)
def test_files_are_short(path: Path):
    assert len(path.read_text().splitlines()) <= LINES_MAX


@pytest.mark.parametrize("path", PYTHON, ids=name)
def test_functions_are_short(path: Path):
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            assert (node.end_lineno or 0) - node.lineno < FUNCTION_LINES_MAX, f"{node.name} at line {node.lineno}"


@pytest.mark.parametrize("path", PYTHON, ids=name)
def test_no_dumping_ground(path: Path):
    assert not DUMPING_GROUNDS & {path.stem, path.parent.name}


@pytest.mark.parametrize("path", [p for p in PYTHON if p.name != "__init__.py" or p.stat().st_size], ids=name)
def test_modules_say_what_they_are(path: Path):
    assert ast.get_docstring(ast.parse(path.read_text())), "no module docstring"


@pytest.mark.parametrize("path", FILES, ids=name)
def test_no_place_of_one_machine(path: Path):
    text = path.read_text(errors="replace")
    for pattern in FORBIDDEN:
        found = pattern.search(text)
        assert not found, f"{found and found.group(0)!r} names a registry host or a path of one machine"


@pytest.mark.parametrize("path", [p for p in PYTHON if "tests" in p.parts and p.name.startswith("test_")], ids=name)
def test_no_test_is_switched_off(path: Path):
    source = path.read_text()
    for word in ("pytest.mark." + "skip", "pytest." + "skip(", "pytest.mark." + "xfail", "importor" + "skip"):
        assert word not in source, f"{word}: a missing part fails the test and says what to install"
