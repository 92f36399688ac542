"""Questions to a run that is not driven here: its program is brought to where its journal ends, asked, and dropped.

Nothing is written and nothing is done: what the program asks for beyond its history is left undone. So it works for
runs of any state, also for those that have ended.
"""

import asyncio
from dataclasses import replace

from lantern_executor.domain.run import Run
from lantern_executor.ports import AnswersQueries, JournalPort, Program, ProgramsPort, Sources
from lantern_kernel import kinds, reasons
from lantern_kernel.bounds import PAYLOAD_INLINE_BYTES_MAX
from lantern_kernel.course.course import Course
from lantern_kernel.errors import LanternError

AT_ONCE_MAX = 4
"""Replays at once: each holds a whole history."""


def ask(program: Program, name: str, payload: bytes) -> bytes:
    """What a program answers.

    Raises:
        LanternError: QUERY_NOT_FOUND, QUERY_FAILED.
    """
    if not isinstance(program, AnswersQueries):
        raise LanternError(reasons.QUERY_NOT_FOUND, "programs of this kind answer no queries", query=name)
    answer = program.answer_query(name, payload)
    if len(answer) > PAYLOAD_INLINE_BYTES_MAX:
        message = f"the answer to {name} takes {len(answer)} bytes; {PAYLOAD_INLINE_BYTES_MAX} are allowed"
        raise LanternError(reasons.QUERY_FAILED, message, query=name)
    return answer


class Queries:
    """Answers from the journal alone."""

    def __init__(self, journal: JournalPort, programs: ProgramsPort, sources: Sources) -> None:
        self._journal = journal
        self._programs = programs
        self._sources = sources
        self._slots = asyncio.Semaphore(AT_ONCE_MAX)

    async def answer(self, run_id: str, name: str, payload: bytes) -> bytes:
        """What the run's program answers, as it stands at the end of the journal.

        Raises:
            LanternError: RUN_NOT_FOUND; AGENT_NOT_FOUND, its agent is not loaded here; NONDETERMINISM, the code that
                is loaded here does not replay it; and see `ask`.
        """
        async with self._slots:
            run = await self._journal.get_run(run_id)
            if run.input_blob is not None:
                run = replace(run, input=await self._journal.get_blob(run.tenant_id, run.input_blob))
            await self._programs.prepare(run)
            resets: tuple[tuple[int, int], ...] = ()
            while True:
                program = self._programs.start(run)
                try:
                    found = await self._replay(run, program, resets)
                    if found is None:
                        return ask(program, name, payload)
                finally:
                    program.close()
                resets = (*resets, found)

    async def _replay(self, run: Run, program: Program, resets: tuple[tuple[int, int], ...]) -> tuple[int, int] | None:
        """Brings the program to the end of the journal; or a reset that was found in it, to begin anew with."""
        course = Course(
            run_id=run.run_id,
            workflow_id=run.workflow_id,
            epoch=0,
            program=program,
            sources=self._sources,
            now_us=lambda: 0,
            resets=resets,
            is_looking_only=True,
        )
        seq = 0
        while page := await self._journal.list_events(run.run_id, seq):
            course.load(page)
            if course.reset_found is not None:
                return course.reset_found
            seq = page[-1].seq
        while True:
            course.advance(beginning=False)
            if course.wanted is None:
                break
            course.provide(await self._journal.get_blob(run.tenant_id, course.wanted))
        if course.ending and course.ending[0].kind == kinds.NONDETERMINISM_DETECTED:
            raise LanternError(
                reasons.NONDETERMINISM, "the code that is loaded here does not replay this run", run_id=run.run_id
            )
        return None
