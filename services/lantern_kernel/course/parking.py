"""What a run waits on that nothing is in flight for."""

from collections.abc import Sequence

from lantern_kernel import reasons
from lantern_kernel.bounds import AWAITED_SIGNALS_MAX
from lantern_kernel.commands import AwaitSignal, Lasting, RequestApproval, RunStep, StartChild
from lantern_kernel.payloads import ParkFacts, RunErrorFacts

STAY_US = 10_000_000
"""A wait up to this stays with the driver; a longer one parks the run (SPEC L8)."""

LINGER_US = 250_000
"""A wait for what others do stays with the driver for so long: an answer that comes at once needs no resume."""


def awaited_from_others(open_commands: Sequence[Lasting]) -> bool:
    """Whether something that others do can wake the program."""
    return any(isinstance(command, AwaitSignal | RequestApproval | StartChild) for command in open_commands)


def park_facts(
    run_id: str,
    open_commands: Sequence[Lasting],
    undecided: Sequence[str],
    due_us: int | None,
    *,
    nothing_to_compensate: bool,
) -> ParkFacts | None:
    """What the run is to be parked on; None where nothing can ever wake it.

    Args:
        run_id: The run.
        open_commands: What the program waits for.
        undecided: The steps of which an operator has to say whether they were delivered.
        due_us: When the next timer or attempt is due; None for none.
        nothing_to_compensate: Whether a cancel may end the run as it stands.
    """
    names = sorted({command.name for command in open_commands if isinstance(command, AwaitSignal)})
    # A run that waits for more names than a park can list is woken by any: it waits on `signal`, naming none.
    signals = tuple(names) if len(names) <= AWAITED_SIGNALS_MAX else ()
    error = None
    if undecided:
        waiting_on = "operator"
        command = f"lantern runs settle {run_id}"
        message = f"whether step {undecided[0]} was delivered is not known: `{command}` with --delivered or --refused"
        error = RunErrorFacts(code=reasons.STEP_OUTCOME_UNKNOWN, message=message, step_id=undecided[0])
    elif names and not signals:
        waiting_on = "signal"
    elif any(isinstance(command, RequestApproval) for command in open_commands):
        waiting_on = "approval"
    elif names:
        waiting_on = "signal"
    elif any(isinstance(command, StartChild) for command in open_commands):
        waiting_on = "child"
    elif due_us is not None or any(isinstance(command, RunStep) for command in open_commands):
        waiting_on = "timer"
    else:
        return None
    if waiting_on == "timer" and due_us is None:
        return None
    return ParkFacts(
        waiting_on=waiting_on,
        due_us=due_us,
        error=error,
        signals=signals,
        nothing_to_compensate=nothing_to_compensate,
    )
