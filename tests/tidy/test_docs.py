"""The documents: every reason has a page, links lead somewhere, decisions are recorded, commands exist.

Method: read the Markdown files and the Makefile.
"""

import re
from pathlib import Path

import pytest

from lantern_kernel import reasons

ROOT = Path(__file__).resolve().parents[2]
PAGES = [
    p
    for p in [
        *ROOT.glob("*.md"),
        *(ROOT / "docs").rglob("*.md"),
        *(ROOT / "services").rglob("*.md"),
        *(ROOT / "clients").rglob("*.md"),
    ]
    if ".venv" not in p.parts
]


@pytest.mark.parametrize("reason", sorted(reasons.ALL))
def test_every_reason_has_a_page(reason: str):
    page = ROOT / "docs" / "errors" / f"{reason}.md"
    assert page.exists()
    assert page.read_text().startswith(f"# {reason}\n")


def test_no_page_without_a_reason():
    pages = {p.stem for p in (ROOT / "docs/errors").glob("*.md")} - {"README"}
    assert pages == set(reasons.ALL)


@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path):
    for target in re.findall(r"\]\(([^)#\s]+)[^)]*\)", page.read_text()):
        if not re.match(r"[a-z]+:", target):
            assert (page.parent / target).exists(), target


def test_decisions_are_recorded():
    records = sorted((ROOT / "docs/adr").glob("[0-9]*.md"))
    assert len(records) >= 8
    numbers = [p.name[:4] for p in records]
    assert len(set(numbers)) == len(numbers), "two decisions have one number"
    for record in records:
        for heading in ("## Context", "## Decision", "## Consequences"):
            assert heading in record.read_text(), f"{record.name} has no {heading}"


def test_the_readme_names_commands_that_exist():
    targets = set(re.findall(r"^([a-z][a-z-]*):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    named = set(re.findall(r"\bmake ([a-z][a-z-]*)", (ROOT / "README.md").read_text()))
    assert {"demo", "test"} <= named <= targets
