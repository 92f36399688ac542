"""One run in an environment, as a test holds it."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lantern.client.run import Run, RunFailed, UpdateFailed
from lantern.program import conversion
from lantern.testing.histories import HistoryFile, history_of, named_blobs
from lantern.testing.stored import Approval, StoredRun
from lantern.testing.waking import CANCEL, PAUSE, RESUME, SIGNAL, UPDATE
from lantern_kernel import kinds, reasons
from lantern_kernel.blobs import BlobRef
from lantern_kernel.course.taking_in import update_id
from lantern_kernel.event import Event
from lantern_kernel.payloads import RunErrorFacts, Unpacked, unpack

if TYPE_CHECKING:
    from lantern.testing.environment import Environment


class Stuck(AssertionError):
    """A run waits for something that does not come by itself."""


class RunHandle:
    """One run; see Environment.start.

    Attributes:
        run_id: The run.
    """

    def __init__(self, environment: "Environment", run: StoredRun) -> None:
        self._environment = environment
        self._run = run
        self.run_id = run.run_id

    @property
    def state(self) -> str:
        """QUEUED, RUNNING, WAITING, SUCCEEDED, FAILED or CANCELLED."""
        return self._run.state

    @property
    def waiting_on(self) -> str:
        """For WAITING: on what; else empty."""
        return self._run.waiting_on

    @property
    def error(self) -> RunErrorFacts | None:
        """Why it failed, was cancelled or waits."""
        return self._run.error

    @property
    def events(self) -> Sequence[Event]:
        """Its history."""
        return tuple(self._run.events)

    @property
    def approvals(self) -> list[Approval]:
        """What it asks somebody to decide, pending ones only."""
        return [each for each in self._run.approvals.values() if each.state == "PENDING"]

    @property
    def children(self) -> "list[RunHandle]":
        """The runs that it began."""
        runs = self._environment.journal.runs.values()
        return [RunHandle(self._environment, each) for each in runs if each.parent and each.parent[0] == self.run_id]

    def finish(self) -> "RunHandle":
        """Skips time until it has ended, the runs that go on for it included; Stuck where nothing ends it."""
        self._environment.finish(self.run_id)
        if self._run.is_open:
            raise Stuck(self._why_stuck())
        if self._run.continued_as:
            return self._environment.handle(self._run.continued_as).finish()
        return self

    def result(self) -> Any:
        """Skips time until it has ended, and gives its result; lantern.RunFailed where it has none."""
        ended = self.finish().snapshot()
        if ended.state != "SUCCEEDED":
            raise RunFailed(ended)
        return ended.result_value

    def signal(self, name: str, payload: Any = None) -> None:
        """Sends it a signal."""
        content = self._environment.content(conversion.encode(payload, "payload"))
        self._send(SIGNAL, name, content)

    def update(self, name: str, payload: Any = None) -> Any:
        """Sends it an update, and skips time until it is answered; UpdateFailed, as a client, where it is not."""
        environment, run = self._environment, self._run
        content = environment.content(conversion.encode(payload, "payload"))
        number = environment.journal.send(self.run_id, UPDATE, name, content, request_id=environment.request_id())
        environment.settle()
        while (answer := self._answer(update_id(number))) is None and run.is_open and environment.skip_to_next():
            pass
        if answer is None:
            raise Stuck(f"update {name} is not answered: {self._why_stuck()}")
        error = answer.facts.get("error")
        if isinstance(error, dict):
            raise UpdateFailed(name, RunErrorFacts.from_facts(error))
        return json.loads(environment.journal.content(answer.content or b"null"))

    def query(self, name: str, payload: Any = None) -> Any:
        """Asks its code something, as it stands once all is done that can be done now; nothing changes."""
        self._environment.settle()
        data = conversion.encode(payload, "payload")
        return json.loads(self._environment.ask(self._run, name, data))

    def _answer(self, step_id: str) -> Unpacked | None:
        for event in self._run.events:
            if event.kind == kinds.UPDATE_COMPLETED and event.step_id == step_id:
                return unpack(event.payload)
        return None

    def cancel(self) -> None:
        """Asks it to end."""
        self._send(CANCEL)

    def pause(self) -> None:
        """Holds it."""
        self._send(PAUSE)

    def resume(self) -> None:
        """Lets it go on, or try again."""
        self._send(RESUME)

    def redrive(self, from_event: int) -> None:
        """Lets a run that waits on code_fix go on from an event: what it recorded behind that is passed over."""
        self._environment.journal.reset(self.run_id, from_event)

    def approve(self, name: str = "", *, by: str = "tester", comment: Any = None) -> None:
        """Approves what it asks for; time is skipped until it does ask.

        Args:
            name: Of the approval; empty where it asks for one only.
            by: Who.
            comment: What JSON can say.
        """
        self._decide(name, "approved", by, comment)

    def deny(self, name: str = "", *, by: str = "tester", comment: Any = None) -> None:
        """Denies what it asks for, as `approve`."""
        self._decide(name, "denied", by, comment)

    def snapshot(self) -> Run:
        """The run as a client sees it."""
        run = self._run
        last_us = run.events[-1].time_us
        result, blob = (b"", run.result) if isinstance(run.result, BlobRef) else (run.result, None)
        return Run(
            run_id=run.run_id,
            tenant_id="default",
            workflow_id=run.workflow_id,
            agent_name=run.agent_name,
            agent_version=1,
            agent_digest=run.agent_digest,
            state=run.state,
            waiting_on=run.waiting_on,
            due_us=run.due_us,
            create_us=run.events[0].time_us,
            update_us=last_us,
            end_us=None if run.is_open else last_us,
            input=self._environment.journal.content(run.input_blob or run.input),
            result=self._environment.journal.content(blob) if blob else result,
            error=run.error,
            traceparent="",
            epoch=run.epoch,
            input_blob=run.input_blob,
            result_blob=blob,
        )

    def save(self, file: str | Path) -> None:
        """Writes its history to a file, to be replayed against later code: see check_files."""
        journal = self._environment.journal
        blobs = {blob: journal.blobs[blob] for blob in named_blobs(self._run.events)}
        with HistoryFile(Path(file), self._environment.now_us) as out:
            out.add(history_of(self.run_id, self._run.events, blobs))

    def _send(self, kind: str, name: str = "", content: bytes | BlobRef = b"") -> None:
        environment = self._environment
        environment.journal.send(self.run_id, kind, name, content, request_id=environment.request_id())

    def _decide(self, name: str, decision: str, by: str, comment: Any) -> None:
        environment = self._environment
        environment.settle()
        while not self._asked(name) and self._run.is_open and environment.skip_to_next():
            pass
        asked = self._asked(name)
        if len(asked) != 1:
            pending = ", ".join(each.facts.approval_id for each in self.approvals) or "none"
            raise Stuck(f"run {self.run_id} asks for {len(asked)} approvals {name or 'in all'}; pending: {pending}")
        said = None if comment is None else conversion.encode(comment, "comment")
        environment.journal.decide(self.run_id, asked[0].facts.approval_id, decision, by, said)

    def _asked(self, name: str) -> list[Approval]:
        return [each for each in self.approvals if name in {"", each.facts.approval_id}]

    def _why_stuck(self) -> str:
        run = self._run
        error = f": {run.error.code}: {run.error.message}" if run.error else ""
        if run.error is not None and run.error.code == reasons.NONDETERMINISM:
            return f"run {self.run_id} waits for fixed code{error}"
        what = [each.facts.approval_id for each in self.approvals] or list(run.park.signals if run.park else ())
        names = f" ({', '.join(what)})" if what else ""
        return f"run {self.run_id} waits on {run.waiting_on or run.state}{names} and nothing comes by itself{error}"

    def __repr__(self) -> str:
        return f"<run {self.run_id} of {self._run.agent_name}: {self.state}>"
