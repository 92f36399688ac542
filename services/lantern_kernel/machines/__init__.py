"""What may follow what for one step, marker or timer. Each module opens with its transition table.

An event that the table does not know, or whose numbers do not fit, raises HISTORY_UNREADABLE and changes nothing.
"""

from collections.abc import Callable, Mapping

from lantern_kernel import kinds
from lantern_kernel.machines.approval import ApprovalMachine
from lantern_kernel.machines.child import ChildMachine
from lantern_kernel.machines.marker import MarkerMachine
from lantern_kernel.machines.step import StepMachine
from lantern_kernel.machines.timer import TimerMachine
from lantern_kernel.machines.update import UpdateMachine

Machine = StepMachine | MarkerMachine | TimerMachine | ApprovalMachine | ChildMachine | UpdateMachine

MACHINES: Mapping[str, Callable[[], Machine]] = {
    kinds.STEP_STARTED: StepMachine,
    kinds.MARKER_RECORDED: MarkerMachine,
    kinds.TIMER_STARTED: TimerMachine,
    kinds.APPROVAL_REQUESTED: ApprovalMachine,
    kinds.CHILD_STARTED: ChildMachine,
    kinds.UPDATE_COMPLETED: UpdateMachine,
    **dict.fromkeys(kinds.OBSERVED, MarkerMachine),
}
"""Which events begin a command, and what each begins."""
