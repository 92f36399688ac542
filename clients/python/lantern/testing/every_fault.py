"""A scenario run once undisturbed, and then once for every fault at every position of the journal."""

import inspect
from collections.abc import Callable, Iterable
from typing import Any

from lantern.testing.environment import Environment
from lantern.testing.faults import Fault, FaultKind, Injector, Position, applies
from lantern.testing.programs import Markers

Scenario = Callable[[Environment], Any]
"""What a test does in an environment: starts runs, speaks to them, checks what came of it. Called anew each time."""

FAULTS_MAX = 5_000
"""Of one check; above it they are taken at even distances, and the first and last are kept."""

SAME_OUTCOME = frozenset(FaultKind) - {FaultKind.CLOCK_JUMP}
"""Faults that no workflow may notice: results and idempotency keys are those of the undisturbed run."""


class FaultNoticed(AssertionError):
    """A fault changed what came of a scenario."""

    def __init__(self, fault: Fault, position: Position, why: str) -> None:
        super().__init__(
            f"{fault.kind.value} at event {fault.position} ({position}): {why}\n"
            f"to repeat it: Environment(faults=Injector(Fault(kind=FaultKind({fault.kind.value!r}),"
            f" position={fault.position})))"
        )
        self.fault = fault
        self.position = position


def check_every_fault(
    subject: Any,
    input: Any = None,  # noqa: A002 - as the client has it
    *,
    kinds: Iterable[FaultKind | str] = FaultKind,
    seed: int = 0,
) -> list[Fault]:
    """Runs a scenario under every fault, each in an environment of its own, and returns the faults.

    In each of them the scenario's own checks must hold, no history may be left that the code does not replay, and for
    all faults but a clock's jump the runs must end as they do undisturbed, having used no other idempotency key.

    Args:
        subject: A function of an Environment, or a workflow, which is then started and waited for.
        input: For a workflow: what JSON can say.
        kinds: Which faults.
        seed: See Environment.

    Raises:
        FaultNoticed: A fault changed what came of it; the first one that did.
    """
    scenario = _started(subject, input) if inspect.iscoroutinefunction(subject) else subject
    wanted = [FaultKind(kind) for kind in kinds]
    markers = Markers()
    undisturbed = Injector()
    with Environment(seed=seed, faults=undisturbed, markers=markers) as environment:
        scenario(environment)
        expected, keys = _outcomes(environment), _keys(environment)
    faults = _thinned(
        [
            Fault(kind=kind, position=number)
            for number, position in enumerate(undisturbed.positions, 1)
            for kind in wanted
            if applies(kind, position)
        ]
    )
    for fault in faults:
        position = undisturbed.positions[fault.position - 1]
        injector = Injector(fault)
        with Environment(seed=seed, replay_every_await=False, faults=injector, markers=Markers(markers)) as environment:
            try:
                scenario(environment)
                environment.check_replays()
            except Exception as error:
                raise FaultNoticed(fault, position, f"{type(error).__name__}: {error}") from error
            if not injector.is_done:
                raise FaultNoticed(fault, position, "the event was never reached: the scenario differs by itself")
            if fault.kind in SAME_OUTCOME:
                _check_same(fault, position, expected, _outcomes(environment), "the runs ended so")
                _check_same(fault, position, keys, _keys(environment), "the keys used were")
    return faults


def _check_same(fault: Fault, position: Position, expected: Any, found: Any, what: str) -> None:
    if found != expected:
        raise FaultNoticed(fault, position, f"{what}: {found}; undisturbed: {expected}")


def _started(workflow: Any, content: Any) -> Scenario:
    def scenario(environment: Environment) -> None:
        environment.start(workflow, content).finish()

    return scenario


def _outcomes(environment: Environment) -> list[tuple[str, str, Any, str]]:
    """How each run ended, or where it stands."""
    ended = [run.snapshot() for run in environment.runs]
    return [(run.agent_name, run.state, run.result, run.error.code if run.error else "") for run in ended]


def _keys(environment: Environment) -> dict[str, list[str]]:
    """The idempotency keys that each step used."""
    used: dict[str, set[str]] = {}
    for attempt in environment.attempts:
        used.setdefault(f"{attempt.run_id}|{attempt.step_id}", set()).add(attempt.key)
    return {step: sorted(keys) for step, keys in sorted(used.items())}


def _thinned(faults: list[Fault]) -> list[Fault]:
    if len(faults) <= FAULTS_MAX:
        return faults
    step = (len(faults) - 1) / (FAULTS_MAX - 1)
    return [faults[round(number * step)] for number in range(FAULTS_MAX)]
