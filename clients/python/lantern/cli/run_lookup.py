"""Which run a person means: a run id, the beginning of one, or a workflow id."""

import re
from collections.abc import Sequence
from typing import Protocol

from lantern.client.run import Run, RunPage
from lantern_kernel import reasons
from lantern_kernel.errors import InvalidField, LanternError
from lantern_kernel.names import RUN_ID, USER_ID

PREFIX = re.compile(r"[0-9a-f][0-9a-f-]{3,35}")
"""At least four characters: less says too little."""

PAGES_MAX = 20
"""Pages of 1,000 runs, newest first, among which the beginning of an id is looked for."""

SHOWN_MAX = 5


class Runs(Protocol):
    """What is needed of the client."""

    async def get(self, run_id: str) -> Run:
        """One run."""
        ...

    async def list(
        self,
        *,
        states: Sequence[str] = (),
        agent: str = "",
        workflow_id: str = "",
        page_size: int = 100,
        page_token: str = "",
    ) -> RunPage:
        """A page of runs, newest first."""
        ...


async def find_run_id(runs: Runs, text: str) -> str:
    """The id of the run that is meant.

    A workflow id means its open run, or the newest one where none is open. Raises RUN_NOT_FOUND, or INVALID_FIELD where
    the beginning fits more than one run.
    """
    if RUN_ID.fullmatch(text):
        return text
    if USER_ID.fullmatch(text):
        page = await runs.list(workflow_id=text)
        named = [run for run in page.runs if not run.is_terminal] or list(page.runs)
        if named:
            return named[0].run_id
    if PREFIX.fullmatch(text):
        return await _by_prefix(runs, text)
    raise _not_found(text)


async def _by_prefix(runs: Runs, prefix: str) -> str:
    found: list[str] = []
    token = ""
    for _ in range(PAGES_MAX):
        page = await runs.list(page_size=1_000, page_token=token)
        found.extend(run.run_id for run in page.runs if run.run_id.startswith(prefix))
        token = page.next_page_token
        # Ids begin with their time, so pages that follow hold older ones: none of them begins with a later time.
        passed = bool(page.runs) and page.runs[-1].run_id[: len(prefix)] < prefix
        if not token or passed or len(found) > SHOWN_MAX:
            break
    if not found:
        raise _not_found(prefix)
    if len(found) > 1:
        shown = ", ".join(found[:SHOWN_MAX]) + (" ..." if len(found) > SHOWN_MAX else "")
        raise InvalidField("run", f"{prefix!r} fits more than one run: {shown}")
    return found[0]


def _not_found(text: str) -> LanternError:
    return LanternError(
        reasons.RUN_NOT_FOUND,
        f"there is no run whose id begins with {text!r} and none with that workflow id",
        field="run",
    )
