"""What is wrong with a graph, in the journal's words."""

from lantern_journal.domain.agents import Fault
from lantern_kernel.graph.check import faults_of


def faults_of_graph(definition: bytes) -> list[Fault]:
    """All that is wrong with a graph's definition; empty where it can be published."""
    return [Fault(path=fault.path, code=fault.code, message=fault.message) for fault in faults_of(definition)]
