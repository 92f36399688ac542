"""Goal: the demonstration cannot pass where something that it claims is not so.

Method: a true outcome of each scene is made up and passes; then one fact after the other is falsified, and each
falsification must be counted as a failed claim, printed with what was expected and what was seen.
"""

import io
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from order.demo import SCENES, STEPS, Checks, Outcome, Scene, check
from rich.console import Console

from lantern_kernel import chain, kinds
from lantern_kernel.event import Event, NewEvent

RUN_ID = "01890a5d-ac96-774b-bcce-b302099a8057"
KEYED, UNKEYED = SCENES


def history(epochs: int = 2, steps: tuple[str, ...] = STEPS) -> list[Event]:
    """A chained history in which each of the steps completes, the last ones under the last epoch."""
    events: list[Event] = []
    previous = chain.genesis(RUN_ID)
    for seq, step_id in enumerate(steps, start=1):
        epoch = 1 if seq == 1 else epochs
        new = NewEvent(kind=kinds.STEP_COMPLETED, step_id=step_id, attempt=1, salt=b"s" * 16)
        digest = new.digest(run_id=RUN_ID, seq=seq, epoch=epoch)
        previous = chain.link(previous, digest, seq)
        events.append(
            Event(
                seq=seq,
                kind=new.kind,
                step_id=step_id,
                attempt=1,
                epoch=epoch,
                time_us=seq,
                payload=new.payload,
                salt=new.salt,
                digest=digest,
                hash=previous,
            )
        )
    return events


def outcome(scene: Scene, **changes: Any) -> Outcome:
    """What is seen where all is well, but for the changes."""
    key = "k" if scene.use_key else ""
    ledger = {
        "charges": [{}] * scene.charges,
        "chargedPence": 4000 * scene.charges,
        "parcels": [{"option": "express"}],
        "mails": [{}],
    }
    seen = Outcome(
        run_id=RUN_ID,
        events=history(),
        killed_us=0,
        state="SUCCEEDED",
        result={"option": "express"},
        ledger=ledger,
        requests=[{"path": "/charges", "key": key}, {"path": "/charges", "key": key}, {"path": "/parcels", "key": "p"}],
    )
    return replace(seen, **changes)


def judge(scene: Scene, seen: Outcome) -> tuple[int, str]:
    """How many claims failed, and what was printed."""
    output = io.StringIO()
    checks = Checks(Console(file=output, width=200))
    check(scene, seen, checks)
    return checks.failed, output.getvalue()


@pytest.mark.parametrize("scene", SCENES, ids=lambda scene: scene.order_id)
def test_what_is_true_passes(scene: Scene) -> None:
    failed, printed = judge(scene, outcome(scene))
    assert failed == 0, printed
    assert "FAILED" not in printed


def _ledger(**changes: Any) -> Callable[[Scene], Outcome]:
    return lambda scene: outcome(scene, ledger={**outcome(scene).ledger, **changes})


FALSEHOODS: dict[str, Callable[[Scene], Outcome]] = {
    "not succeeded": lambda scene: outcome(scene, state="RUNNING", result=None),
    "another number of charges": _ledger(charges=[{}] * 3),
    "another sum": _ledger(chargedPence=4001),
    "no mail": _ledger(mails=[]),
    "two parcels": _ledger(parcels=[{"option": "express"}] * 2),
    "shipped otherwise than chosen": _ledger(parcels=[{"option": "pigeon"}]),
    "one driver": lambda scene: outcome(scene, events=history(epochs=1)),
    "a step left out": lambda scene: outcome(scene, events=history(steps=STEPS[:3])),
    "a step done twice": lambda scene: outcome(scene, events=history(steps=(*STEPS, "mail"))),
    "a charge that was not repeated": lambda scene: outcome(scene, requests=outcome(scene).requests[1:]),
    "two keys": lambda scene: outcome(scene, requests=[{"path": "/charges", "key": key} for key in ("k1", "k2")]),
    "a broken chain": lambda scene: outcome(scene, events=[replace(event, hash=b"") for event in history()]),
}


@pytest.mark.parametrize("scene", SCENES, ids=lambda scene: scene.order_id)
@pytest.mark.parametrize("name", FALSEHOODS)
def test_what_is_false_fails_and_is_shown(scene: Scene, name: str) -> None:
    failed, printed = judge(scene, FALSEHOODS[name](scene))
    assert failed >= 1
    assert "FAILED" in printed
    assert "expected" in printed


def test_the_scenes_are_one_charge_with_a_key_and_two_without() -> None:
    assert (KEYED.use_key, KEYED.charges) == (True, 1)
    assert (UNKEYED.use_key, UNKEYED.charges) == (False, 2)
