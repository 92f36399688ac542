"""The examples of docs/guides/testing-workflows.md run as they stand there.

Method: each block is a test file of a project of its own, with one module `shop`; pytest runs them in a process.
"""

import re
import subprocess
import sys
from pathlib import Path

from lantern import registry
from lantern.testing import Environment

ROOT = Path(__file__).resolve().parents[3]
GUIDE = ROOT / "docs/guides/testing-workflows.md"

SHOP = """
import lantern


def charge(item):
    return {"charged": item}


@lantern.workflow
async def order(ctx, order):
    await ctx.step("charge", charge, order["item"], timeout_s=5, retry=lantern.RetryPolicy(max_attempts=3))
    await ctx.sleep(3 * 3600)
    await ctx.http("ship", "POST", "http://shop/parcels", json=order)
    return "shipped"
"""

SHOP_WITHOUT_HTTP = SHOP.replace('await ctx.http("ship", "POST", "http://shop/parcels", json=order)', "pass")


def blocks() -> list[str]:
    return re.findall(r"```python\n(.*?)```", GUIDE.read_text(), re.DOTALL)


def run_pytest(folder: Path) -> str:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "lantern.testing.plugin", "-p", "no:cacheprovider", "."]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def save_history(folder: Path, file: Path) -> None:
    try:
        (definition,) = registry.load_module(str(folder / "shop.py"))
        with Environment() as env:
            env.http(lambda request: {})
            run = env.start(definition.function, {"item": "lantern"})
            run.result()
            run.save(file)
    finally:
        # Other tests have modules of that name, too.
        sys.modules.pop("shop", None)
        sys.path.remove(str(folder))


def test_the_examples_run(tmp_path: Path):
    (tmp_path / "shop.py").write_text(SHOP)
    save_history(tmp_path, tmp_path / "order.jsonl.gz")
    found = blocks()
    assert len(found) == 4
    for number, block in enumerate(found[1:], 1):
        (tmp_path / f"test_{number}.py").write_text(block)
    assert "3 passed" in run_pytest(tmp_path)


def test_the_three_lines_run(tmp_path: Path):
    (tmp_path / "shop.py").write_text(SHOP_WITHOUT_HTTP)
    (tmp_path / "test_0.py").write_text(blocks()[0])
    assert "1 passed" in run_pytest(tmp_path)
