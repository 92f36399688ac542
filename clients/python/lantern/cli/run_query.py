"""Which runs a command is about: ids, or a query such as `agent=order,state=WAITING`."""

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass

from lantern.cli.run_lookup import Runs
from lantern.client.run import STATES, TERMINAL_STATES, Run
from lantern_kernel.bounds import PAGE_ROWS_MAX
from lantern_kernel.errors import InvalidField

OPEN_STATES = tuple(state for state in STATES if state not in TERMINAL_STATES)

FORM = "open, all, or agent=NAME, state=STATE, workflow=ID, joined by commas"


@dataclass(frozen=True, kw_only=True, slots=True)
class RunQuery:
    """Which runs are meant."""

    # In these states; empty is all.
    states: tuple[str, ...] = OPEN_STATES
    # Of this agent; empty is all.
    agent: str = ""
    # With this workflow id; empty is all.
    workflow_id: str = ""


def parse_query(text: str, option: str = "--runs") -> RunQuery:
    """A query as people write it; InvalidField naming the option where it is none.

    `state` may stand several times; where none does, open runs are meant.
    """
    if text in {"", "open"}:
        return RunQuery()
    if text == "all":
        return RunQuery(states=())
    states: list[str] = []
    found: dict[str, str] = {}
    for part in text.split(","):
        name, is_said, value = (each.strip() for each in part.partition("="))
        if not is_said or name not in {"agent", "state", "workflow"} or not value or name in found:
            raise InvalidField(option, f"{part.strip()!r} is not understood: {FORM}")
        if name != "state":
            found[name] = value
        elif value.upper() in STATES:
            states.append(value.upper())
        else:
            raise InvalidField(option, f"{value!r} is none of {', '.join(STATES)}")
    return RunQuery(
        states=tuple(states) or OPEN_STATES, agent=found.get("agent", ""), workflow_id=found.get("workflow", "")
    )


async def runs_of(client: Runs, query: RunQuery, limit: int) -> AsyncIterator[Run]:
    """The runs that are meant, newest first, at most `limit`."""
    count, token = 0, ""
    while True:
        page = await client.list(
            states=query.states,
            agent=query.agent,
            workflow_id=query.workflow_id,
            page_size=min(limit - count, PAGE_ROWS_MAX),
            page_token=token,
        )
        for run in page.runs:
            yield run
        count, token = count + len(page.runs), page.next_page_token
        if not token or count >= limit:
            return


def named(ids: Sequence[str], query: str, option: str = "--runs") -> RunQuery | None:
    """The query, or None where ids are given instead; InvalidField where both or neither are."""
    if bool(ids) == bool(query):
        raise InvalidField(option, f"name runs by their ids or by {option}, one of the two")
    return None if ids else parse_query(query, option)
