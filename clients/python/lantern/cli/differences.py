"""Where code asks for something else than is recorded, for people: both sides, each with its line of code."""

from collections.abc import Mapping

from rich.text import Text

from lantern.client.run import Run
from lantern_kernel import reasons

_DIGEST_SHOWN = 12
"""Digits of a digest that tell two versions apart for people."""


def side_lines(difference: Mapping[str, object], indent: str = "  ") -> list[Text]:
    """What is recorded and what the code asks for, from the facts of nondeterminism_detected."""
    sides = (("recorded", "recorded", "recordedSource"), ("code asks", "asked", "askedSource"))
    lines: list[Text] = []
    for word, what, where in sides:
        source = f"  ({difference[where]})" if difference.get(where) else ""
        lines.append(Text(f"{indent}{word:<9}  {difference.get(what, '')}{source}"))
    return lines


def code_fix_lines(run: Run) -> list[Text]:
    """Why a run waits for other code, and what lets it go on; none where it is about something else."""
    error = run.error
    if error is None or error.code != reasons.NONDETERMINISM or not error.details:
        return []
    facts = error.details
    lines = [Text.assemble(("error   ", "bold red"), f"{error.code} at event {facts.get('seq', '?')}")]
    lines.extend(side_lines(facts, indent="        "))
    if facts.get("digest"):
        lines.append(Text(f"        by code    {facts['digest'][:_DIGEST_SHOWN]}", style="dim"))
    if run.waiting_on == "code_fix":
        hint = "start workers with code that agrees, it goes on by itself; before that: lantern replay-check --module M"
        lines.append(Text.assemble(("next    ", "bold yellow"), hint))
    return lines
