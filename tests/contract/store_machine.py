"""The operations that all stores are asked, and how each is made from what hypothesis draws."""

from dataclasses import replace
from hashlib import sha256
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from machine_draws import (
    AGENTS,
    DIGESTS,
    ENTRIES,
    GRAPH,
    GRAPHS,
    LIMITS,
    SIGNALS,
    STEPS_OF_TIME_US,
    TENANTS,
    UNKNOWN,
    WAITS,
    WORKERS,
    content,
    few,
    many,
    off_by,
    runs,
)
from store_trio import START_US, Refused, Trio

from lantern_journal.domain.agents import Publication, Wanted
from lantern_journal.domain.appends import Append, Head, plan_group
from lantern_journal.domain.family import Parent
from lantern_journal.domain.leases import AgentOffer
from lantern_journal.domain.records import (
    Attach,
    Claim,
    Grant,
    LeaseTarget,
    NewEntry,
    NewRun,
    ReleaseCause,
    RunFilter,
    Settlement,
    SideEffectState,
    StartSignal,
    Tending,
    WorkflowIdPolicy,
)
from lantern_journal.domain.run_state import RunState
from lantern_kernel import kinds, payloads
from lantern_kernel.event import NewEvent
from lantern_kernel.payloads import ParkFacts, RunErrorFacts


class Machine(RuleBasedStateMachine):
    """See the module."""

    trio: Trio

    def __init__(self) -> None:
        super().__init__()
        self.trio.clear()
        self.count = 0
        self.run_ids: list[str] = []
        self.started: list[NewRun] = []
        self.grants: list[Grant] = []
        self.heads: list[tuple[str, Head]] = []

    # What the rules say often.

    def salt(self) -> bytes:
        self.count += 1
        return sha256(str(self.count).encode()).digest()[:16]

    def ask(self, method: str, *args: Any) -> Any:
        return self.trio.ask(method, *args)

    def run_id(self, index: int) -> str:
        """Mostly one of the newest runs; none before there is one."""
        if not self.run_ids or index == UNKNOWN:
            return "00000000-0000-7000-8000-00000000ffff"
        return self.run_ids[-1 - index % len(self.run_ids)]

    def epoch(self, run_id: str) -> int:
        run = self.trio.tables.runs.get(run_id)
        return run.epoch if run else 1

    def target(self, worker: int, off: int) -> LeaseTarget:
        worker_id = WORKERS[worker % len(WORKERS)]
        session = self.trio.tables.sessions.get(worker_id)
        return LeaseTarget(worker_id=worker_id, session_number=(session.session_number if session else 1) + off)

    def holder(self, run_id: str, worker: int, off: int) -> LeaseTarget:
        """Mostly who holds the lease."""
        lock = self.trio.tables.locks.get(run_id)
        if lock is None or not lock.worker_id or worker == 0:
            return self.target(worker, off)
        return LeaseTarget(worker_id=lock.worker_id, session_number=lock.session_number + off)

    def new_run(
        self, index: int, agent: int, workflow: int, policy: WorkflowIdPolicy, target: LeaseTarget | None
    ) -> NewRun:
        self.count += 1
        return NewRun(
            run_id=f"0190b5f0-0000-7000-8000-{self.count:012x}",
            request_id=f"r{index}",
            request_digest=DIGESTS[agent % 2].encode()[:32],
            tenant_id=TENANTS[index % 5 == 4],
            agent_name=AGENTS[agent % len(AGENTS)],
            input=b'{"order":%d}' % index,
            workflow_id="" if workflow > 2 else f"wf-{workflow}",
            policy=policy,
            traceparent="00-1-1-01",
            target=target,
            salts=(self.salt(), self.salt()),
            end_salt=self.salt(),
            signal=StartSignal(name=SIGNALS[index % 3], payload=b"%d" % index) if index % 3 else None,
        )

    # Time.

    @rule(us=st.sampled_from(STEPS_OF_TIME_US))
    def time_passes(self, us: int) -> None:
        self.trio.set_time(self.trio.clock.us + us)

    # Sessions.

    @initialize(driven=few)
    def set_the_scene(self, driven: int) -> None:
        """Workers that offer everything, and some runs that they drive: from here it is not far to anything."""
        for worker in range(3):
            self.attach(worker, {0, 1, 2}, worker, False, 0, 1)
        for index in range(4):
            target = self.target(index, 0) if index <= driven else None
            self._start([self.new_run(8 + index, index, index, WorkflowIdPolicy.REJECT, target)])
        for run_id in self.run_ids[:driven]:
            self.ask("open_run", run_id, 1, self.holder(run_id, 1, 0), LIMITS)

    @rule(
        worker=few,
        agents=st.sets(few, min_size=1, max_size=3),
        digest=few,
        tenant=st.booleans(),
        draining=few,
        level=st.sampled_from((1, 1, 1, 2)),
    )
    def attach(self, worker: int, agents: set[int], digest: int, tenant: bool, draining: int, level: int) -> None:
        offers = tuple(
            AgentOffer(name=AGENTS[a], digest=DIGESTS[(digest + a) % 3], program_kind="code")
            for a in sorted(agents)
            if a != GRAPH or digest == 3
        )
        # Who drives graphs drives all of them, by code that has versions of its own.
        offers += (AgentOffer(name="*", digest=DIGESTS[digest % 3], program_kind="graph"),) if level == 2 else ()
        self.ask(
            "attach",
            Attach(
                worker_id=WORKERS[worker % 3],
                address="127.0.0.1:1",
                capacity=2,
                offers=offers,
                tenant_id=TENANTS[tenant and worker == 3],
                draining=draining == 3,
                event_level=level,
            ),
        )

    @rule(request=many, content=st.sampled_from(GRAPHS), tenant=st.booleans(), agent=st.sampled_from((0, GRAPH, GRAPH)))
    def publish(self, request: int, content: bytes, tenant: bool, agent: int) -> None:
        tenant_id = TENANTS[tenant and request == 0]
        publication = Publication(
            request_id=f"p{request}",
            tenant_id=tenant_id,
            name=AGENTS[agent],
            program_kind="graph",
            definition=content,
        )
        self.ask("publish_agent", publication)
        self.ask("find_definition", Wanted(tenant_id=tenant_id, name=AGENTS[agent], version=request % 3, digest=""))
        wanted = Wanted(tenant_id=tenant_id, name=AGENTS[agent], version=0, digest=publication.digest)
        self.ask("find_definition", wanted)

    @rule(worker=few, off=off_by)
    def close_session(self, worker: int, off: int) -> None:
        target = self.target(worker, off)
        self.ask("close_session", target.worker_id, target.session_number)

    @rule(seen=st.sets(few), off=off_by, renew=st.sets(few), inbox=st.sets(few))
    def tend(self, seen: set[int], off: int, renew: set[int], inbox: set[int]) -> None:
        heard = {target.worker_id: target.session_number for target in (self.target(w, off) for w in sorted(seen))}
        tending = Tending(
            seen=tuple(heard.items()),
            renew=tuple(sorted({WORKERS[w % 3] for w in renew})),
            inbox_of=tuple(sorted({WORKERS[w % 3] for w in inbox})),
        )
        self.ask("tend_sessions", tending, LIMITS)

    @rule()
    def adopt(self) -> None:
        self.ask("adopt_sessions")

    # Runs.

    @rule(
        index=many,
        agent=few,
        workflow=st.integers(0, 5),
        policy=st.sampled_from(WorkflowIdPolicy),
        worker=few,
        off=off_by,
    )
    def start(self, index: int, agent: int, workflow: int, policy: WorkflowIdPolicy, worker: int, off: int) -> None:
        target = self.target(worker, off) if worker else None
        self._start([self.new_run(index, agent, workflow, policy, target)])

    @rule(indexes=st.sets(many, min_size=2, max_size=3), agent=few, worker=few)
    def start_several(self, indexes: set[int], agent: int, worker: int) -> None:
        policy = WorkflowIdPolicy.ALLOW_AFTER_CLOSE
        self._start([self.new_run(i, agent + i, 3, policy, self.target(worker, 0)) for i in sorted(indexes)])

    @rule(index=many)
    def start_again(self, index: int) -> None:
        """The answer was lost."""
        if self.started:
            self.ask("start_runs", [self.started[index % len(self.started)]], LIMITS)

    def _start(self, news: list[NewRun]) -> None:
        self.started += news
        for new, outcome in zip(news, self.ask("start_runs", news, LIMITS), strict=True):
            if not isinstance(outcome, Refused) and outcome.created:
                self.run_ids.append(new.run_id)

    @rule(run=runs, step=few, off=off_by, worker=few, abandon=st.booleans(), workflow=st.integers(0, 5))
    def start_child(self, run: int, step: int, off: int, worker: int, abandon: bool, workflow: int) -> None:
        """Also of runs that nobody drives, and under epochs that are over."""
        self.count += 1
        run_id = self.run_id(run)
        parent = Parent(run_id=run_id, step_id=f"c{step}[1]", epoch=max(1, self.epoch(run_id) + off), abandon=abandon)
        target = self.target(worker, 0) if worker else None
        policy = WorkflowIdPolicy.TERMINATE_EXISTING if step == 3 else WorkflowIdPolicy.ALLOW_AFTER_CLOSE
        new = self.new_run(0, step, workflow, policy, target)
        known = self.trio.tables.runs.get(run_id)
        tenant_id = known.tenant_id if known is not None else "default"
        request_id = f"child:{run_id}|{parent.step_id}"
        made = replace(
            new, request_id=request_id, tenant_id=tenant_id, parent=parent, durability=("sync", "exit")[step % 2]
        )
        self._start([made])

    @rule(run=runs, kind=st.sampled_from(ENTRIES), request=many, payload=few)
    def send(self, run: int, kind: str, request: int, payload: int) -> None:
        entry = NewEntry(
            request_id=f"e{request}",
            run_id=self.run_id(run),
            kind=kind,
            name=SIGNALS[payload % 3] if kind in ("signal", "update") else "",
            payload=b"%d" % (payload // 2),
            salts=(self.salt(), self.salt()),
        )
        self.ask("send", entry, LIMITS)

    # Leases.

    @rule(run=runs, worker=few, off=off_by, epoch_off=off_by)
    def open_run(self, run: int, worker: int, off: int, epoch_off: int) -> None:
        run_id = self.run_id(run)
        self.ask("open_run", run_id, self.epoch(run_id) + epoch_off, self.holder(run_id, worker, off), LIMITS)

    @rule(run=runs, worker=few, off=off_by, reason=st.sampled_from(("crash", "timer", "start")))
    def acquire(self, run: int, worker: int, off: int, reason: str) -> None:
        grant = Grant(run_id=self.run_id(run), target=self.target(worker, off), reason=reason, salt=self.salt())
        self.grants.append(grant)
        self.ask("acquire_lease", grant, LIMITS)

    @rule(index=many)
    def acquire_again(self, index: int) -> None:
        """The answer was lost."""
        if self.grants:
            self.ask("acquire_lease", self.grants[-1 - index % len(self.grants)], LIMITS)

    @rule(worker=few)
    def place_orphans(self, worker: int) -> None:
        """As recovery does."""
        for orphan in self.ask("find_orphans", 20, LIMITS):
            grant = Grant(run_id=orphan.run_id, target=self.target(worker, 0), reason=orphan.reason, salt=self.salt())
            epoch = self.ask("acquire_lease", grant, LIMITS)
            if epoch:
                self.ask("open_run", orphan.run_id, epoch, grant.target, LIMITS)

    @rule(run=runs, worker=few, off=off_by, cause=st.sampled_from(ReleaseCause))
    def release(self, run: int, worker: int, off: int, cause: ReleaseCause) -> None:
        run_id = self.run_id(run)
        holder = self.holder(run_id, worker, 0)
        self.ask("release_lease", run_id, self.epoch(run_id) + off, holder.worker_id, cause)

    @rule(run=runs, delay_us=st.sampled_from((None, None, 1, 2_000_000)))
    def defer(self, run: int, delay_us: int | None) -> None:
        self.ask("defer_run", self.run_id(run), delay_us, self.salt(), LIMITS)

    # Appends.

    @rule(parts=st.lists(st.tuples(runs, content, many, off_by), min_size=1, max_size=3))
    def append(self, parts: list[tuple[int, str, int, int]]) -> None:
        """A group on top of the heads, as the committer makes one; two appends of one run follow each other."""
        known = self.ask("heads", self.run_ids)
        after = dict(known)
        group: list[Append] = []
        for run, what, index, off in parts:
            run_id = self.run_id(run)
            head = after.get(run_id)
            if head is None:
                continue
            append = self._append(run_id, head, what, index, off)
            plan = plan_group([append], {run_id: head}, self.trio.clock.us)
            after.update(plan.heads)
            group.append(append)
        plan = plan_group(group, known, self.trio.clock.us)
        if plan.rows:
            self.heads += known.items()
            self.ask("insert_group", plan.rows, plan.changes)

    @rule(run=runs, what=content, index=many, off=off_by)
    def append_one(self, run: int, what: str, index: int, off: int) -> None:
        self.append([(run, what, index, off)])

    @rule(run=runs, index=many, first=content, second=content, kind=st.sampled_from(("signal", "cancel", "")))
    def append_two(self, run: int, index: int, first: str, second: str, kind: str) -> None:
        """Two appends of one run in one group, after somebody may have spoken to it."""
        if kind:
            self.send(run, kind, self.count, index)
        self.append([(run, first, index, 0), (run, second, index, 0)])

    @rule(run=runs, worker=few, what=content, index=many)
    def drive(self, run: int, worker: int, what: str, index: int) -> None:
        """Grant, open, append."""
        self.acquire(run, worker, 0, "crash")
        self.open_run(run, 1, 0, 0)
        self.append([(run, what, index, 0)])

    @rule(index=many, what=content)
    def append_on_an_old_head(self, index: int, what: str) -> None:
        """A journal process whose heads are out of date."""
        if self.heads:
            run_id, head = self.heads[-1 - index % len(self.heads)]
            plan = plan_group([self._append(run_id, head, what, index, 0)], {run_id: head}, self.trio.clock.us)
            if plan.rows:
                self.ask("insert_group", plan.rows, plan.changes)

    def _append(self, run_id: str, head: Head, what: str, index: int, off: int) -> Append:
        run = self.trio.tables.runs[run_id]
        number = max(1, min(run.consumed_inbox + 1, run.inbox_number))
        return Append(
            run_id=run_id,
            epoch=head.epoch,
            first_seq=head.seq + 1,
            previous_digest=head.digest,
            events=tuple(self._events(what, index, number)),
            consumed_inbox_number=max(0, run.inbox_number + off),
        )

    def _events(self, what: str, index: int, number: int) -> list[NewEvent]:
        numbered, failed = payloads.pack({"number": number}), RunErrorFacts(code="E", message="x" * index)
        match what:
            case "step":
                return [
                    self._event(kinds.STEP_STARTED, b"{}", "s"),
                    self._event(kinds.STEP_COMPLETED, b'{"data":1}', "s"),
                ]
            case "waiting":
                facts = {"on": "operator", "key": DIGESTS[index % 3]}
                return [self._event(kinds.STEP_WAITING, payloads.pack(facts), "s")]
            case "signal":
                return [self._event(kinds.SIGNAL_RECEIVED, numbered)]
            case "cancel":
                return [self._event(kinds.CANCEL_REQUESTED, numbered)]
            case "both":
                return [self._event(kinds.CANCEL_REQUESTED, numbered), self._event(kinds.RUN_CANCELLED, b"{}")]
            case "park":
                return [self._event(kinds.RUN_PARKED, self._park(index).pack())]
            case "succeed":
                return [self._event(kinds.RUN_SUCCEEDED, b'{"data":[1]}')]
            case "continue":
                facts = {"continueAsNew": True, "carry": list(range(1, 4 + index))}
                return [self._event(kinds.RUN_SUCCEEDED, payloads.pack(facts, b"[2]"))]
            case "fail":
                return [self._event(kinds.RUN_FAILED, payloads.pack(failed.to_facts()))]
            case _:
                return [self._event(kinds.RUN_CANCELLED, b"{}")]

    def _park(self, index: int) -> ParkFacts:
        on = WAITS[index % len(WAITS)]
        due_us = self.trio.clock.us + 5_000_000 if on == "timer" or index == 7 else None
        error = RunErrorFacts(code="NONDETERMINISM", message="é", details={"digest": DIGESTS[index % 3]})
        return ParkFacts(
            waiting_on=on,
            due_us=due_us,
            error=error if on == "code_fix" else None,
            signals=SIGNALS[: index % 3],
            nothing_to_compensate=index % 4 == 1,
        )

    def _event(self, kind: str, payload: bytes, step_id: str = "") -> NewEvent:
        return NewEvent(kind=kind, step_id=step_id, attempt=len(step_id), payload=payload, salt=self.salt())

    # Deliveries.

    @rule(run=runs, off=off_by, key=few, nonce=few)
    def claim(self, run: int, off: int, key: int, nonce: int) -> None:
        run_id = self.run_id(run)
        claim = Claim(
            key=DIGESTS[key % 3],
            run_id=run_id,
            step_id="s",
            epoch=self.epoch(run_id) + off,
            sink="mail",
            worker_id="w1",
            nonce=b"%d" % nonce,
        )
        self.ask("claim_side_effect", claim)

    @rule(run=runs, key=few, delivered=st.booleans(), result=few)
    def settle(self, run: int, key: int, delivered: bool, result: int) -> None:
        receipt = self.trio.tables.receipts.get(DIGESTS[key % 3])
        settlement = Settlement(
            key=DIGESTS[key % 3],
            state=SideEffectState.DELIVERED if delivered else SideEffectState.REFUSED,
            result=b"%d" % (result // 2),
            run_id=receipt.run_id if receipt and run else self.run_id(run),
            worker_id="w1",
        )
        self.ask("settle_side_effect", settlement)

    # Reading.

    @rule(run=runs, after=many, limit=st.integers(1, 4), size=st.sampled_from((1, 700, 10_000)))
    def read_a_run(self, run: int, after: int, limit: int, size: int) -> None:
        run_id = self.run_id(run)
        self.ask("get_run", run_id)
        self.ask("head", run_id)
        self.ask("list_events", run_id, after, limit, size)
        self.ask("list_inbox", run_id, after, limit, size)

    @rule(
        tenant=st.sampled_from(TENANTS),
        states=st.sets(st.sampled_from(RunState), max_size=2),
        workflow=st.sampled_from(("", "", "wf-0", "wf-1")),
        agent=st.sampled_from(("", "", *AGENTS)),
        before=many,
        limit=st.integers(1, 4),
        size=st.sampled_from((1, 2_500, 100_000)),
    )
    def read_lists(
        self, tenant: str, states: set[RunState], workflow: str, agent: str, before: int, limit: int, size: int
    ) -> None:
        wanted = RunFilter(tenant_id=tenant, states=tuple(sorted(states)), workflow_id=workflow, agent_name=agent)
        self.ask("list_runs", wanted, self.run_id(before) if before else "", limit, size)
        self.ask("list_agents", tenant, (agent, before), limit)

    @rule(limit=st.integers(1, 5), after=st.sampled_from((0, 1, 5_000_000)))
    def look_for_work(self, limit: int, after: int) -> None:
        self.ask("find_orphans", limit, LIMITS)
        self.ask("find_workers", LIMITS)
        self.ask("next_due_us", self.trio.clock.us + after)
        self.ask("next_due_us", START_US)

    # All of it.

    @rule(data=st.data(), count=st.integers(5, 20))
    def mix(self, data: st.DataObject, count: int) -> None:
        """Anything after anything: hypothesis itself stays with few kinds of operation in one example."""
        for _ in range(count):
            name = data.draw(st.sampled_from(OPERATIONS_OF_ALL_KINDS))
            chosen = getattr(type(self), name).hypothesis_stateful_rule.arguments
            getattr(self, name)(**{argument: data.draw(strategy) for argument, strategy in chosen.items()})
            self.trio.compare()

    @invariant()
    def one_content(self) -> None:
        self.trio.compare()


OPERATIONS_OF_ALL_KINDS = sorted(
    name for name, rule_ in vars(Machine).items() if hasattr(rule_, "hypothesis_stateful_rule") and name != "mix"
)
