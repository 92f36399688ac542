"""`lantern approvals`: list what runs ask for, approve, deny and delegate it."""

import getpass
import time
from collections.abc import Sequence
from typing import Annotated, Optional

import typer

from lantern.cli import draw, runs
from lantern.cli.console import make_console, print_line
from lantern.cli.faults import reported
from lantern.cli.run_json import approval_value, dump
from lantern.cli.run_lookup import find_run_id
from lantern.cli.runs import LIMIT_MAX, DirOption, JsonOption, RequestOption, RunArgument
from lantern.client.approval import STATES, Approval
from lantern.client.client import OPERATOR, Client
from lantern_kernel import names, reasons
from lantern_kernel.bounds import PAGE_ROWS_MAX
from lantern_kernel.errors import InvalidField, LanternError

SHOWN_MAX = 5

app = typer.Typer(no_args_is_help=True, help="List what runs ask for, approve, deny and delegate it.")

ApprovalArgument = Annotated[
    str, typer.Argument(metavar="[APPROVAL]", help="The approval's id; may be left out where only one is pending.")
]
ByOption = Annotated[str, typer.Option("--by", help="Who decides; by default the user of this machine.")]
CommentOption = Annotated[str, typer.Option("--comment", help="JSON, @file, or - for standard input.")]


@app.command("list")
@reported
def list_(
    state: Annotated[
        Optional[list[str]],  # noqa: UP045 - typer reads it
        typer.Option("--state", help=f"Only in this state; may be repeated, `all` is all: {', '.join(STATES)}."),
    ] = None,
    assignee: Annotated[str, typer.Option(help="Only of this assignee.")] = "",
    run: Annotated[str, typer.Option("--run", help="Only of this run.")] = "",
    limit: Annotated[int, typer.Option(min=1, max=LIMIT_MAX, help="At most this many, oldest first.")] = 50,
    folder: DirOption = None,
    as_json: JsonOption = False,
) -> None:
    """List approvals, oldest first; by default those that are pending."""
    states = [name.strip().upper() for name in state or ("PENDING",)]
    if "ALL" in states:
        states = []
    for name in states:
        if name not in STATES:
            raise InvalidField("--state", f"{name!r} must be one of {', '.join(STATES)}")

    async def use(client: Client) -> list[Approval]:
        run_id = await find_run_id(client, run) if run else ""
        return await _found(client, states, assignee, run_id, limit)

    found = runs.with_client(folder, use)
    if as_json:
        print_line(dump({"approvals": [approval_value(approval) for approval in found]}))
    elif not found:
        make_console().print("no approvals")
    else:
        now_us = int(time.time() * 1e6)
        for approval in found:
            print_line(_line(approval, now_us))


async def _found(client: Client, states: Sequence[str], assignee: str, run_id: str, limit: int) -> list[Approval]:
    found: list[Approval] = []
    token = ""
    while True:
        size = min(limit - len(found), PAGE_ROWS_MAX)
        page = await client.approvals(states=states, assignee=assignee, run_id=run_id, page_size=size, page_token=token)
        found.extend(page.approvals)
        token = page.next_page_token
        if not token or len(found) >= limit:
            return found[:limit]


def _line(approval: Approval, now_us: int) -> str:
    """One approval for people: what can be copied into the next command comes first."""
    parts = [
        approval.run_id,
        approval.approval_id,
        approval.state,
        f"{draw.duration(now_us - approval.request_us)} ago",
    ]
    parts += [part for part in (approval.agent_name, approval.workflow_id) if part]
    if approval.assignee:
        parts.append(f"for {approval.assignee}")
    if approval.decided_by:
        parts.append(f"by {approval.decided_by}")
    if approval.state == "PENDING" and approval.expire_us is not None:
        parts.append(f"expires in {draw.duration(max(0, approval.expire_us - now_us))}")
    if approval.title:
        parts.append(" ".join(approval.title.split()))
    return "  ".join(parts)


@app.command()
@reported
def approve(
    run: RunArgument,
    approval: ApprovalArgument = "",
    by: ByOption = "",
    comment: CommentOption = "",
    request_id: RequestOption = "",
    folder: DirOption = None,
    as_json: JsonOption = False,
) -> None:
    """Say yes. The first decision wins; the exit code is 2 where another one is recorded."""
    runs.with_client(folder, lambda client: _decide(client, run, approval, by, comment, request_id, True, as_json))


@app.command()
@reported
def deny(
    run: RunArgument,
    approval: ApprovalArgument = "",
    by: ByOption = "",
    comment: CommentOption = "",
    request_id: RequestOption = "",
    folder: DirOption = None,
    as_json: JsonOption = False,
) -> None:
    """Say no. The first decision wins; the exit code is 2 where another one is recorded."""
    runs.with_client(folder, lambda client: _decide(client, run, approval, by, comment, request_id, False, as_json))


async def _decide(
    client: Client, run: str, approval: str, by: str, comment: str, request_id: str, yes: bool, as_json: bool
) -> None:
    run_id = await find_run_id(client, run)
    decided = await client.decide(
        run_id,
        approval or await _only_pending(client, run_id),
        by or _user(),
        approve=yes,
        comment_json=runs.read_json("--comment", comment) if comment else None,
        request_id=request_id or None,
    )
    recorded = decided.approval
    if as_json:
        print_line(dump(approval_value(recorded) | {"alreadyDecided": decided.already_decided}))
        return
    before = "already " if decided.already_decided else ""
    print_line(f"{run_id}  {recorded.approval_id}  {before}{recorded.state.lower()} by {recorded.decided_by}")


@app.command()
@reported
def delegate(
    run: RunArgument,
    assignee: Annotated[str, typer.Argument(help="Whose inbox it goes into.")],
    approval: ApprovalArgument = "",
    by: ByOption = "",
    request_id: RequestOption = "",
    folder: DirOption = None,
    as_json: JsonOption = False,
) -> None:
    """Give an approval into somebody else's inbox."""

    async def use(client: Client) -> None:
        run_id = await find_run_id(client, run)
        chosen = approval or await _only_pending(client, run_id)
        given = await client.delegate(run_id, chosen, assignee, by or _user(), request_id=request_id or None)
        print_line(
            dump(approval_value(given)) if as_json else f"{run_id}  {given.approval_id}  now for {given.assignee}"
        )

    runs.with_client(folder, use)


async def _only_pending(client: Client, run_id: str) -> str:
    """The id of the one approval that a run asks for."""
    page = await client.approvals(run_id=run_id, page_size=SHOWN_MAX + 1)
    pending = [approval.approval_id for approval in page.approvals]
    if not pending:
        raise LanternError(reasons.APPROVAL_NOT_FOUND, f"run {run_id} asks for nothing that is pending", field="run")
    if len(pending) > 1:
        raise InvalidField("APPROVAL", f"more than one is pending: {', '.join(pending[:SHOWN_MAX])}")
    return pending[0]


def _user() -> str:
    """Who types this, as far as the machine knows and an id can say."""
    try:
        name = getpass.getuser()
    except (KeyError, OSError):
        return OPERATOR
    return name if names.USER_ID.fullmatch(name) else OPERATOR
