"""The shape of the services: whoever knows one knows all (docs/ARCHITECTURE.md).

Method: look at the folders, the descriptors and the sources; nothing is started.
"""

import ast
import importlib
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SERVICES = ["lantern_journal", "lantern_executor", "lantern_recovery"]
ROLES = [
    "README.md",
    "__init__.py",
    "__main__.py",
    "settings",
    "domain",
    "application",
    "ports",
    "wire",
    "validate",
    "servicer",
    "adapters",
]
SOURCES = list((ROOT / "services").rglob("*.py"))
SERVICER_LINES_MAX = 300


@pytest.mark.parametrize("service", SERVICES)
def test_every_service_has_the_same_files(service: str):
    folder = ROOT / "services" / service
    for role in ROLES:
        assert (folder / role).exists() or (folder / f"{role}.py").exists(), f"{service} has no {role}"


@pytest.mark.parametrize("service", SERVICES)
def test_a_servicer_only_unpacks_calls_and_packs(service: str):
    folder = ROOT / "services" / service
    files = [folder / "servicer.py"] if (folder / "servicer.py").exists() else list((folder / "servicer").glob("*.py"))
    assert files
    for path in files:
        assert len(path.read_text().splitlines()) <= SERVICER_LINES_MAX


def test_one_module_names_the_status_codes():
    naming = {str(p.relative_to(ROOT)) for p in SOURCES if "StatusCode" in p.read_text()}
    assert naming == {"services/lantern_serving/status.py"}


def test_only_the_journal_imports_a_database():
    pattern = re.compile(r"^\s*(import|from) (sqlalchemy|psycopg|alembic|sqlite3)\b", re.MULTILINE)
    using = {p.relative_to(ROOT / "services").parts[0] for p in SOURCES if pattern.search(p.read_text())}
    assert using == {"lantern_journal"}


def test_no_process_is_forked():
    for path in [*SOURCES, *(ROOT / "clients/python/lantern").rglob("*.py")]:
        text = path.read_text()
        assert "os.fork" not in text, path
        assert "multiprocessing" not in text, path


@pytest.mark.parametrize(
    "path", sorted((ROOT / "services/lantern_kernel/machines").glob("[a-z]*.py")), ids=lambda p: p.name
)
def test_a_machine_opens_with_its_table(path: Path):
    body = [n for n in ast.parse(path.read_text()).body if not isinstance(n, ast.Import | ast.ImportFrom | ast.Expr)]
    tables = [n for n in body if isinstance(n, ast.Assign | ast.AnnAssign) and "TRANSITIONS" in ast.unparse(n)]
    functions = [n for n in body if isinstance(n, ast.FunctionDef)]
    assert tables, "no TRANSITIONS table"
    assert not functions or tables[0].lineno < functions[0].lineno


@pytest.mark.parametrize("service", SERVICES)
def test_every_setting_is_documented(service: str):
    source = (ROOT / "services" / service / "settings.py").read_text()
    page = (ROOT / "docs/reference/settings.md").read_text()
    for setting in set(re.findall(r"LANTERN_[A-Z_]+", source)):
        assert f"`{setting}`" in page, f"{setting} of {service} is not in docs/reference/settings.md"


@pytest.mark.parametrize("service", SERVICES)
def test_importing_a_service_opens_nothing(service: str):
    importlib.import_module(service)
    for path in (ROOT / "services" / service).rglob("*.py"):
        for node in ast.parse(path.read_text()).body:
            assert "insecure_channel" not in ast.unparse(node) or not isinstance(node, ast.Assign | ast.Expr), path
