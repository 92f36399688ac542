"""Published graphs as programs: definitions fetched once and kept, each run of one in an interpreter of its own."""

from collections import OrderedDict
from collections.abc import Callable, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Protocol

from lantern_executor.adapters.nodes import Nodes
from lantern_executor.domain.run import Offer, Run
from lantern_executor.domain.step import StepCall
from lantern_executor.ports import Program, ProgramsPort
from lantern_kernel import graph as graph_package
from lantern_kernel import program, reasons
from lantern_kernel.commands import Command
from lantern_kernel.errors import LanternError
from lantern_kernel.graph import definition
from lantern_kernel.graph.compiled import CompiledGraph
from lantern_kernel.graph.interpreter import Interpreter, NodeWork, RunFacts
from lantern_kernel.names import ANY_AGENT
from lantern_kernel.outcomes import Happening
from lantern_kernel.program import ReplayView

GRAPH = "graph"

KEPT_MAX = 256
"""Definitions, parsed; the one that was used longest ago goes first."""


class GraphRun(program.Program, Protocol):
    """A graph that is being run."""

    def node_work(self, step_id: str) -> NodeWork:
        """What to execute for a step that it issued."""
        ...

    def answer_query(self, name: str, payload: bytes) -> bytes:
        """See AnswersQueries."""
        ...


class Definitions(Protocol):
    """Where definitions are kept."""

    async def get_definition(self, tenant_id: str, name: str, digest: str) -> bytes:
        """A version of a published agent, by the digest of its definition; AGENT_NOT_FOUND."""
        ...


Begin = Callable[[Run], GraphRun]
"""Makes the interpreter of one run of a parsed graph."""


def interpreted(digest: str) -> Callable[[bytes], Begin]:
    """Makes of a definition what begins its runs, in the interpreter of that digest."""

    def parse(content: bytes) -> Begin:
        graph = CompiledGraph(definition.parse(content))
        return lambda run: Interpreter(
            graph, RunFacts(run_id=run.run_id, workflow_id=run.workflow_id, input=run.input), digest
        )

    return parse


def interpreter_digest() -> str:
    """SHA-256 (hex) over the interpreter's own code: another one may replay what this one could not."""
    total = sha256(b"lantern.graph.interpreter.v1\0")
    for file in sorted(Path(graph_package.__path__[0]).glob("*.py")):
        content = file.read_bytes()
        total.update(b"%d:%b%d:%b" % (len(file.name), file.name.encode(), len(content), content))
    return total.hexdigest()


class GraphProgram:
    """One run of a graph."""

    def __init__(self, interpreter: GraphRun, nodes: Nodes, digest: str) -> None:
        self._interpreter, self._nodes = interpreter, nodes
        # Of the interpreter: what a run pins cannot change, so only another interpreter can mend its replay.
        self.digest = digest

    @property
    def has_compensation(self) -> bool:
        """See Program."""
        return self._interpreter.has_compensation

    def begin(self, view: ReplayView) -> None:
        """See Program."""
        self._interpreter.begin(view)

    def advance(self) -> Sequence[Command]:
        """See Program."""
        return self._interpreter.advance()

    def resolve(self, outcome: Happening) -> None:
        """See Program."""
        self._interpreter.resolve(outcome)

    def marker_value(self, step_id: str) -> bytes:
        """See Program."""
        return self._interpreter.marker_value(step_id)

    def step_call(self, step_id: str) -> StepCall:
        """See Program."""
        work = self._interpreter.node_work(step_id)
        return self._nodes.step_call(work.node_type, work.spec, keyed=work.keyed)

    def answer_query(self, name: str, payload: bytes) -> bytes:
        """See AnswersQueries."""
        return self._interpreter.answer_query(name, payload)

    def close(self) -> None:
        """See Program."""


class GraphPrograms:
    """ProgramsPort over all graphs that are published.

    Args:
        definitions: Where they are kept.
        parse: Makes of a definition what begins its runs.
        nodes: Executes what nodes do outside.
        digest: SHA-256 (hex) of the interpreter's code.
    """

    def __init__(self, definitions: Definitions, parse: Callable[[bytes], Begin], nodes: Nodes, digest: str) -> None:
        self._definitions, self._parse, self._nodes, self._digest = definitions, parse, nodes, digest
        self._parsed: OrderedDict[tuple[str, str], Begin] = OrderedDict()

    def offers(self) -> Sequence[Offer]:
        """See ProgramsPort."""
        return [Offer(name=ANY_AGENT, digest=self._digest, program_kind=GRAPH)]

    async def prepare(self, run: Run) -> None:
        """See ProgramsPort."""
        key = (run.tenant_id, run.agent_digest)
        if key not in self._parsed:
            content = await self._definitions.get_definition(run.tenant_id, run.agent_name, run.agent_digest)
            if sha256(content).hexdigest() != run.agent_digest:
                raise LanternError(
                    reasons.AGENT_NOT_FOUND,
                    f"the definition of {run.agent_name}@{run.agent_version} is not the one that the run pinned",
                    agent=run.agent_name,
                )
            self._parsed[key] = self._parse(content)
        self._parsed.move_to_end(key)
        while len(self._parsed) > KEPT_MAX:
            self._parsed.popitem(last=False)

    def start(self, run: Run) -> GraphProgram:
        """See ProgramsPort."""
        begin = self._parsed.get((run.tenant_id, run.agent_digest))
        if begin is None:
            raise LanternError(reasons.AGENT_NOT_FOUND, f"the definition of {run.agent_name} is not at hand")
        return GraphProgram(begin(run), self._nodes, self._digest)


class AllPrograms:
    """ProgramsPort over code by its name, and over graphs for every other name.

    Args:
        code: The workflows that are loaded here.
        graphs: Whatever is published.
    """

    def __init__(self, code: ProgramsPort, graphs: ProgramsPort) -> None:
        self._code, self._graphs = code, graphs
        self._names = frozenset(offer.name for offer in code.offers())

    def offers(self) -> Sequence[Offer]:
        """See ProgramsPort."""
        return [*self._code.offers(), *self._graphs.offers()]

    async def prepare(self, run: Run) -> None:
        """See ProgramsPort."""
        await self._of(run).prepare(run)

    def start(self, run: Run) -> Program:
        """See ProgramsPort."""
        return self._of(run).start(run)

    def _of(self, run: Run) -> ProgramsPort:
        # A name is of one program kind: what is loaded as code here is published nowhere.
        return self._code if run.agent_name in self._names else self._graphs
