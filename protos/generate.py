"""Generates the Python stubs of every proto into clients/python/lantern/api, or checks that they are up to date.

Usage: ``python protos/generate.py [--check]``. The stubs are committed and never edited by hand.
"""

import argparse
import filecmp
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

PROTOS = Path(__file__).resolve().parent
TARGET = PROTOS.parent / "clients" / "python"
HEADER = '"""Generated from protos/lantern/api; do not edit."""\n'


def generate(out: Path) -> None:
    """Writes all stubs below `out`/lantern/api."""
    sources = sorted(str(path.relative_to(PROTOS)) for path in (PROTOS / "lantern").rglob("*.proto"))
    command = [sys.executable, "-m", "grpc_tools.protoc", f"-I{PROTOS}", f"-I{PROTOS / 'third_party'}"]
    plugin = Path(sys.executable).parent / "protoc-gen-mypy_grpc"
    command += [f"--plugin=protoc-gen-mypy_grpc={plugin}"]
    command += [
        "--mypy_grpc_opt=quiet",
        *(f"--{kind}_out={out}" for kind in ("python", "pyi", "grpc_python", "mypy_grpc")),
    ]
    subprocess.run([*command, *sources], check=True, cwd=PROTOS)  # noqa: S603 - our own arguments
    for folder in {path.parent for path in (out / "lantern" / "api").rglob("*.py")}:
        for package in (folder, *folder.parents):
            if package == out / "lantern":
                break
            (package / "__init__.py").write_text(HEADER)


def differences(left: Path, right: Path) -> list[str]:
    """Names of files that differ between two trees, caches apart."""
    names = {
        str(path.relative_to(root))
        for root in (left, right)
        for path in root.rglob("*.py*")
        if "__pycache__" not in path.parts
    }
    pairs = ((name, left / name, right / name) for name in sorted(names))
    return [n for n, a, b in pairs if not (a.exists() and b.exists() and filecmp.cmp(a, b, shallow=False))]


def main() -> int:
    """Returns 0 where the committed stubs are (now) those of the protos, else 1."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="change nothing; fail where the stubs are stale")
    check = parser.parse_args().check
    with tempfile.TemporaryDirectory() as folder:
        generate(Path(folder))
        made, kept = Path(folder) / "lantern" / "api", TARGET / "lantern" / "api"
        stale = differences(made, kept)
        if check:
            sys.stdout.write("".join(f"stale stub: lantern/api/{name} (run `make gen`)\n" for name in stale))
            return 1 if stale else 0
        shutil.rmtree(kept, ignore_errors=True)
        shutil.copytree(made, kept)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
