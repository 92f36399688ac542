"""The lab's workflow, mended: each order ships by the option that it first chose, read from LANTERN_TEST_CHOSEN.

This is what a user would deploy for runs that wait for mended code: code that asks for what is on record.
"""

import json
import os
from pathlib import Path
from typing import Any

from order import lab

import lantern

CHOSEN: dict[str, str] = json.loads(Path(os.environ["LANTERN_TEST_CHOSEN"]).read_text())
"""The option by order id."""


@lantern.workflow(name="order-lab")
async def mended(ctx: lantern.Context, order: dict[str, Any]) -> dict[str, Any]:
    """The same steps; the choice does not ask the clock again."""
    return await lab.place(ctx, order, _as_chosen)


async def _as_chosen(ctx: lantern.Context, order: dict[str, Any]) -> str:
    del ctx
    return CHOSEN[order["orderId"]]
