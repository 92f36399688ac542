"""Whether code replays stored histories: what `lantern replay-check` and tests of users ask."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from lantern import registry
from lantern.registry import Definition, WorkflowFunction
from lantern.testing.histories import History, read_histories
from lantern.testing.programs import Agent, Markers, WatchedProgram
from lantern.testing.replaying import ReplayDiffers, replay, said
from lantern_kernel.errors import LanternError

Verdict = Literal["replays", "blocks", "unknown agent", "unreadable"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Checked:
    """What became of one history."""

    # The run.
    run_id: str
    # What it executes.
    agent_name: str
    # Its own name; may be empty.
    workflow_id: str
    # How many events it has.
    event_count: int
    # `blocks`: the code asks for something else than is recorded, so the run would wait for a fix. `unknown agent`: the
    # code holds no such workflow. `unreadable`: the history cannot be replayed by this version.
    verdict: Verdict
    # For people: what is wrong; empty where nothing is.
    why: str = ""
    # For `blocks`: the facts of nondeterminism_detected.
    difference: Mapping[str, Any] | None = None


def check(definitions: Mapping[str, Definition], history: History) -> Checked:
    """Replays a history by the workflow of its agent's name. Nothing of its steps and markers is run."""
    definition = definitions.get(history.agent_name)
    if definition is None:
        return _checked(history, "unknown agent", f"no workflow {history.agent_name!r} is loaded")
    try:
        content = history.input
        _, difference = replay(
            history.run_id,
            history.workflow_id,
            history.events,
            lambda: WatchedProgram(Agent.of(definition), history.run_id, history.workflow_id, content, Markers()),
            history.content,
        )
    except LanternError as error:
        return _checked(history, "unreadable", f"{error.reason}: {error.message}")
    if difference is None:
        return _checked(history, "replays", "")
    return _checked(history, "blocks", said(difference), difference)


def _checked(history: History, verdict: Verdict, why: str, difference: Mapping[str, Any] | None = None) -> Checked:
    return Checked(
        run_id=history.run_id,
        agent_name=history.agent_name,
        workflow_id=history.workflow_id,
        event_count=len(history.events),
        verdict=verdict,
        why=why,
        difference=difference,
    )


def check_files(*files: str | Path, workflows: "tuple[WorkflowFunction, ...] | list[WorkflowFunction]") -> int:
    """Replays every history of files that `lantern runs export` wrote; how many there were.

    Args:
        files: Their paths.
        workflows: The functions; histories of other agents are an error, too.

    Raises:
        ReplayDiffers: One would block, or cannot be replayed; the first.
        LanternError: A file is damaged.
    """
    definitions = {each.name: each for each in map(registry.definition_of, workflows)}
    count = 0
    for file in files:
        for history in read_histories(Path(file)):
            checked = check(definitions, history)
            if checked.verdict != "replays":
                raise ReplayDiffers(f"{file}: run {checked.run_id} of {checked.agent_name}: {checked.why}")
            count += 1
    return count
