"""Keeps the journal of a commit as a test asset: the code that must go on working beside a newer schema.

Usage: ``python tests/migration/freeze.py COMMIT`` writes tests/migration/journal_NNNN.zip, NNNN being the newest
revision that its code knows. Made when a revision is frozen, before the next one is begun, and never again.
"""

import argparse
import io
import re
import subprocess
import tarfile
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PARTS = {
    "services/lantern_journal": "lantern_journal",
    "services/lantern_kernel": "lantern_kernel",
    "services/lantern_serving": "lantern_serving",
    "clients/python/lantern/__init__.py": "lantern/__init__.py",
    "clients/python/lantern/api": "lantern/api",
}
"""What a journal process imports, and where it stands in the archive."""


def main() -> None:
    """Writes the archive."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("commit")
    commit = parser.parse_args().commit
    packed = subprocess.run(["git", "archive", commit, *PARTS], cwd=ROOT, check=True, capture_output=True).stdout
    files: dict[str, bytes] = {}
    with tarfile.open(fileobj=io.BytesIO(packed)) as tar:
        for member in tar.getmembers():
            content = tar.extractfile(member) if member.isfile() else None
            # Types are for tools.
            if content is not None and not member.name.endswith((".pyi", ".md")):
                files[_moved(member.name)] = content.read()
    found = re.search(rb"^REVISION = (\d+)$", files["lantern_journal/adapters/schema.py"], re.MULTILINE)
    assert found is not None, "the code says which revision it knows"
    target = Path(__file__).with_name(f"journal_{int(found[1]):04d}.zip")
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for name in sorted(files):
            # One date, so that the same commit makes the same bytes.
            archive.writestr(zipfile.ZipInfo(name, (2026, 1, 1, 0, 0, 0)), files[name], zipfile.ZIP_DEFLATED)
    print(f"{target.relative_to(ROOT)}: {len(files)} files of {commit}")


def _moved(name: str) -> str:
    part = next(part for part in PARTS if name.startswith(part))
    return PARTS[part] + name.removeprefix(part)


if __name__ == "__main__":
    main()
