"""Goal: the host turns workflow code into commands and its ends into Succeed and Fail, the same live and replayed.

Method: small workflows driven by hand; outcomes handed over one by one; outer loops of several kinds around it.
"""

import asyncio
import itertools
import json
from datetime import UTC
from typing import Any

import pytest
from host_kit import INFO, done, end_of, error_of, failed, host_of, ids

import lantern
from lantern.program.calls import FunctionCall, HttpCall
from lantern.program.host import WorkflowHost
from lantern.registry import define
from lantern_kernel import reasons
from lantern_kernel.commands import Fail, RecordMarker, RunStep, StartTimer, Succeed
from lantern_kernel.errors import InvalidField, LanternError
from lantern_kernel.payloads import RunErrorFacts


def test_commands_carry_what_was_asked_and_where() -> None:
    policy = lantern.RetryPolicy(max_attempts=3)

    async def program(ctx: lantern.Context, order: dict[str, int]) -> Any:
        assert (ctx.run_id, ctx.workflow_id) == (INFO.run_id, "order-1042")
        first = await ctx.step("reserve", print, order, (1, 2), retry=policy, timeout_s=1.5, claim="ask", sink="mail")
        await ctx.side_effect("option", lambda: 1)
        await ctx.sleep(0.25)
        return [first, await ctx.step("reserve", print)]

    host = host_of(program)
    (command,) = host.advance()
    line = program.__code__.co_firstlineno + 2
    assert command == RunStep(
        step_id="reserve",
        name="reserve",
        type="function",
        input=b'[{"id":1042},[1,2]]',
        source=f"test_host.py:{line}",
        retry=policy,
        timeout_ms=1500,
        claim="ask",
        sink="mail",
    )
    assert host.step_call("reserve") == FunctionCall(fn=print, args=({"id": 1042}, [1, 2]))
    assert host.advance() == [], "it waits"
    host.resolve(done("reserve", b'{"x": 1.50}'))
    assert host.advance() == [RecordMarker(step_id="option", name="option", source=f"test_host.py:{line + 1}")]
    host.resolve(done("option", b"1"))
    assert host.advance() == [StartTimer(step_id="sleep", duration_us=250_000, source=f"test_host.py:{line + 2}")]
    host.resolve(done("sleep", None))
    assert ids(host.advance()) == ["reserve[1]"]
    host.resolve(done("reserve[1]", b'"\\u0000"'))
    assert host.advance() == [Succeed(result=b'[{"x":1.5},"\\u0000"]')]
    assert host.advance() == []


def test_values_come_back_as_json_gives_them_live_and_replayed() -> None:
    async def program(ctx: lantern.Context) -> Any:
        value = await ctx.side_effect("pair", lambda: (1, {"a": (2,)}))
        assert value == [1, {"a": [2]}]
        return value

    host = host_of(program)
    host.advance()
    recorded = host.marker_value("pair")
    assert recorded == b'[1,{"a":[2]}]'
    host.resolve(done("pair", recorded))
    assert host.advance() == [Succeed(result=recorded)]


def test_time_and_chance_are_read_once_and_read_back() -> None:
    class Fixed:
        def now_us(self) -> int:
            return 1_750_000_000_123_456

        def random01(self) -> float:
            return 0.1

        def uuid(self) -> str:
            return "6f7f1c3e-0d1a-4b0e-8f0a-3f6f3f1f2f3f"

    async def program(ctx: lantern.Context) -> Any:
        now = await ctx.now()
        assert (now.isoformat(), now.tzinfo) == ("2025-06-15T15:06:40.123456+00:00", UTC)
        again = await ctx.now()
        return [await ctx.random(), str(await ctx.uuid()), (again - now).total_seconds()]

    host = WorkflowHost(define(program), b"", INFO, Fixed())
    for step_id in ("now", "now[1]", "random", "uuid"):
        (command,) = host.advance()
        assert isinstance(command, RecordMarker)
        assert command.step_id == step_id
        assert command.source.startswith("test_host.py:")
        value = host.marker_value(step_id)
        host.resolve(done(step_id, value if step_id != "now[1]" else b"1750000001123456"))
    assert host.advance() == [Succeed(result=b'[0.1,"6f7f1c3e-0d1a-4b0e-8f0a-3f6f3f1f2f3f",1.0]')]


def test_an_http_step() -> None:
    async def program(ctx: lantern.Context) -> Any:
        answer = await ctx.http("charge", "post", "http://pay/v1", json={"n": 1}, headers={"X": "y"}, timeout_s=2.0)
        await ctx.http("look", "GET", "https://pay/v1", keyed=False)
        return [answer.status, answer.body]

    host = host_of(program)
    (command,) = host.advance()
    assert isinstance(command, RunStep)
    assert (command.type, command.keyed, command.timeout_ms) == ("http", True, 2000)
    assert json.loads(command.input) == {
        "method": "POST",
        "url": "http://pay/v1",
        "headers": {"X": "y"},
        "body": {"n": 1},
    }
    assert host.step_call("charge") == HttpCall(
        method="POST", url="http://pay/v1", body=b'{"n":1}', headers={"X": "y"}, timeout_s=2.0, keyed=True
    )
    host.resolve(done("charge", HttpCall.output(201, b'{"ok": 1.0}')))
    (look,) = host.advance()
    call = host.step_call("look")
    assert isinstance(look, RunStep)
    assert isinstance(call, HttpCall)
    assert (look.keyed, call.keyed, call.body) == (False, False, b"")
    host.resolve(done("look", HttpCall.output(204, b"plain \xc3\xa9")))
    assert host.advance() == [Succeed(result=b'[201,{"ok":1.0}]')]


def test_gather_issues_in_order_and_takes_completions_in_theirs() -> None:
    async def one(ctx: lantern.Context, name: str) -> str:
        await ctx.step(name, print)
        await ctx.step(name, print)
        return name

    async def program(ctx: lantern.Context) -> Any:
        return await asyncio.gather(*(one(ctx, name) for name in "abc"))

    host = host_of(program)
    assert ids(host.advance()) == ["a", "b", "c"]
    host.resolve(done("c"))
    host.resolve(done("a"))
    assert ids(host.advance()) == ["c[1]", "a[1]"]
    for step_id in ("b", "a[1]", "c[1]"):
        host.resolve(done(step_id))
    assert ids(host.advance()) == ["b[1]"]
    host.resolve(done("b[1]"))
    assert host.advance() == [Succeed(result=b'["a","b","c"]')]


def test_outcomes_given_together_are_seen_as_if_given_one_by_one() -> None:
    async def slow(ctx: lantern.Context, log: list[str]) -> None:
        await ctx.step("a", print)
        for _ in range(3):
            await asyncio.sleep(0)
        log.append(await ctx.step("after-a", print))

    async def quick(ctx: lantern.Context, log: list[str]) -> None:
        await ctx.step("b", print)
        log.append(await ctx.step("after-b", print))

    async def program(ctx: lantern.Context) -> None:
        log: list[str] = []
        await asyncio.gather(slow(ctx, log), quick(ctx, log))

    together, apart = host_of(program), host_of(program)
    assert ids(together.advance()) == ids(apart.advance()) == ["a", "b"]
    apart.resolve(done("a"))
    commands = apart.advance()
    apart.resolve(done("b"))
    commands += apart.advance()
    together.resolve(done("a"))
    together.resolve(done("b"))
    assert ids(together.advance()) == ids(commands) == ["after-a", "after-b"]


def test_a_step_that_failed_raises_where_it_is_awaited() -> None:
    async def program(ctx: lantern.Context) -> Any:
        try:
            await ctx.step("a", print)
        except lantern.StepError as error:
            return [error.code, error.message, error.step_id, dict(error.details)]

    host = host_of(program)
    host.advance()
    host.resolve(failed("a"))
    assert host.advance() == [Succeed(result=b'["NO","no","a",{"status":"402"}]')]


def test_uncaught_step_errors_end_the_run_as_themselves() -> None:
    async def alone(ctx: lantern.Context) -> Any:
        await ctx.step("a", print)

    async def grouped(ctx: lantern.Context) -> Any:
        async with asyncio.TaskGroup() as group:
            group.create_task(alone(ctx))

    async def gathered(ctx: lantern.Context) -> Any:
        await asyncio.gather(alone(ctx), ctx.step("b", print))

    for program in (alone, grouped, gathered):
        host = host_of(program)
        host.advance()
        host.resolve(failed("a"))
        expected = RunErrorFacts(code="NO", message="no", step_id="a", details={"status": "402"})
        assert host.advance() == [Fail(error=expected)]
        host.close()


def test_other_errors_are_workflow_errors_with_their_place() -> None:
    async def program(ctx: lantern.Context) -> Any:
        await asyncio.gather(asyncio.sleep(0))
        raise KeyError("x\ud800")

    error = error_of(program)
    assert (error.code, error.step_id) == (reasons.WORKFLOW_ERROR, "")
    assert error.message == "KeyError: 'x\\ud800'"
    assert error.details == {"source": f"test_host.py:{program.__code__.co_firstlineno + 2}"}


def test_a_bad_step_name_is_reported_at_the_users_line() -> None:
    async def program(ctx: lantern.Context) -> Any:
        await ctx.step("größe", len)

    error = error_of(program)
    assert "größe" in error.message
    assert error.details is not None
    assert error.details["source"] == f"test_host.py:{program.__code__.co_firstlineno + 1}"


@pytest.mark.parametrize(
    "fault", [SystemExit(3), KeyboardInterrupt(), GeneratorExit(), asyncio.CancelledError(), RecursionError("deep")]
)
def test_no_exception_leaves_the_host(fault: BaseException) -> None:
    async def program(ctx: lantern.Context) -> Any:
        raise fault

    assert error_of(program).code == reasons.WORKFLOW_ERROR


def test_a_callback_that_raises_ends_the_run() -> None:
    async def program(ctx: lantern.Context) -> Any:
        asyncio.get_running_loop().call_soon(lambda: 1 // 0)
        await ctx.step("a", print)

    host = host_of(program)
    commands = host.advance()
    assert isinstance(commands[-1], Fail)
    assert commands[-1].error.message.startswith("ZeroDivisionError")


def test_huge_messages_are_cut_and_say_so() -> None:
    async def program(ctx: lantern.Context) -> Any:
        raise ValueError("x" * 10_000_000)

    message = error_of(program).message
    assert len(message) < 5_000
    assert message.endswith("more characters)")


@pytest.mark.parametrize(
    "value", [float("nan"), float("inf"), {"a": [1, {2}]}, "\ud800", {1: 2}, 10**5000, object()], ids=range(7)
)
def test_values_that_json_cannot_say_fail_the_step_or_the_run_with_their_path(value: Any) -> None:
    async def argument(ctx: lantern.Context) -> Any:
        await ctx.step("a", print, 1, {"v": value})

    async def body(ctx: lantern.Context) -> Any:
        await ctx.http("a", "POST", "http://x", json={"v": value})

    async def result(ctx: lantern.Context) -> Any:
        return {"v": value}

    async def caught(ctx: lantern.Context) -> Any:
        try:
            await ctx.step("a", print, value)
        except lantern.StepError as error:
            return error.step_id

    for program, path, step_id in ((argument, "args[1].v", "a"), (body, "json.v", "a"), (result, "result.v", "")):
        error = error_of(program)
        assert (error.code, error.step_id) == (reasons.INVALID_JSON, step_id)
        assert error.details is not None
        assert error.details["field"].startswith(path)
    assert end_of(caught) == Succeed(result=b'"a"')


def test_a_value_over_the_bound_is_refused_by_size() -> None:
    async def program(ctx: lantern.Context) -> Any:
        return "x" * 67_108_863

    assert error_of(program).code == reasons.PAYLOAD_TOO_LARGE


def test_markers_without_a_value_fail_with_theirs() -> None:
    async def program(ctx: lantern.Context) -> Any:
        await asyncio.gather(
            ctx.side_effect("nan", lambda: {"a": float("nan")}),
            ctx.side_effect("raises", lambda: 1 // 0),
            ctx.side_effect("async", lambda: asyncio.sleep(0)),
            ctx.side_effect("inside", lambda: ctx.sleep(1).send(None)),
        )

    host = host_of(program)
    host.advance()
    with pytest.raises(InvalidField) as caught:
        host.marker_value("nan")
    assert caught.value.details["field"] == "value.a"
    with pytest.raises(LanternError, match="ZeroDivisionError") as raised:
        host.marker_value("raises")
    assert raised.value.reason == reasons.WORKFLOW_ERROR
    assert raised.value.details["source"].startswith("test_host.py:")
    assert Fail.of(raised.value, "raises").error.step_id == "raises"
    with pytest.raises(LanternError, match="is async"):
        host.marker_value("async")
    with pytest.raises(LanternError, match="only in the workflow function itself"):
        host.marker_value("inside")


@pytest.mark.parametrize(
    ("method", "args", "options", "field"),
    [
        ("step", ("a b", print), {}, "step name"),
        ("step", ("a[1]", print), {}, "step name"),
        ("step", ("a|b", print), {}, "step name"),
        ("step", ("a", 7), {}, "function"),
        ("step", ("a", print), {"timeout_s": float("nan")}, "timeout_s"),
        ("step", ("a", print), {"timeout_s": 0}, "timeout_s"),
        ("step", ("a", print), {"claim": "maybe"}, "claim"),
        ("step", ("a", print), {"claim": "ask", "sink": "a b"}, "sink"),
        ("step", ("a", print), {"key_scope": "tenant"}, "key_scope"),
        ("http", ("a", "GET", "ftp://x"), {}, "url"),
        ("side_effect", ("", print), {}, "side effect name"),
        ("sleep", (-1,), {}, "seconds"),
        ("sleep", (float("inf"),), {}, "seconds"),
    ],
)
def test_options_out_of_range_are_named(
    method: str, args: tuple[Any, ...], options: dict[str, Any], field: str
) -> None:
    async def program(ctx: lantern.Context) -> Any:
        await getattr(ctx, method)(*args, **options)

    error = error_of(program)
    assert error.code == reasons.WORKFLOW_ERROR
    assert error.details is not None
    assert (error.details["reason"], error.details["field"]) == (reasons.INVALID_FIELD, field)


def test_a_claim_is_about_the_step_itself_unless_said_otherwise() -> None:
    async def program(ctx: lantern.Context) -> Any:
        await asyncio.gather(
            ctx.step("receipt", print, claim="skip"),
            ctx.step("plain", print),
            ctx.http("hook", "POST", "https://x", claim="retry", sink="crm"),
        )

    asked = [(command.claim, command.sink) for command in host_of(program).advance() if isinstance(command, RunStep)]
    assert asked == [("skip", "receipt"), ("", ""), ("retry", "crm")]


def test_a_workflow_may_leave_out_the_input() -> None:
    async def without(ctx: lantern.Context) -> Any:
        return "none"

    async def given(ctx: lantern.Context, value: Any) -> Any:
        return value

    assert end_of(without) == Succeed(result=b'"none"')
    assert host_of(given, b"[1]").advance() == [Succeed(result=b"[1]")]
    assert host_of(given, b"").advance() == [Succeed(result=b"null")]


def test_a_cancelled_step_is_not_heard_of_again() -> None:
    async def program(ctx: lantern.Context) -> Any:
        task = asyncio.create_task(ctx.step("a", print))
        await ctx.step("b", print)
        task.cancel()
        try:
            await task
        except asyncio.CancelledError:
            return await ctx.step("c", print)

    host = host_of(program)
    assert ids(host.advance()) == ["b", "a"]
    host.resolve(done("b"))
    assert ids(host.advance()) == ["c"]
    host.resolve(done("a"))
    assert host.advance() == []
    host.resolve(done("c", b"3"))
    assert host.advance() == [Succeed(result=b"3")]


def test_a_deadlock_ends_the_run() -> None:
    async def program(ctx: lantern.Context) -> Any:
        await asyncio.get_running_loop().create_future()

    assert "deadlock" in error_of(program).message


def test_spinning_ends_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    async def program(ctx: lantern.Context) -> Any:
        for _ in itertools.count():
            await asyncio.sleep(0)

    monkeypatch.setattr("lantern.program.loop.CALLBACKS_PER_STRETCH_MAX", 1_000)
    assert "without waiting" in error_of(program).message
