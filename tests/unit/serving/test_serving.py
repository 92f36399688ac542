"""Goal: the shell that all services share tells errors exactly and never lives on half dead.

Method: round trips through google.rpc.Status without a channel; a drain with tasks that end; settings from a mapping.
"""

import asyncio

import grpc
import pytest

from lantern_kernel import reasons
from lantern_kernel.errors import InvalidField, LanternError
from lantern_serving import settings, status
from lantern_serving.server import run_until_signal


@pytest.mark.parametrize("reason", sorted(reasons.ALL))
def test_an_error_survives_the_wire(reason: str):
    error = LanternError(reason, "what is wrong", retry_after_s=1.5, field="a.b[2]", count=3)
    back = status.from_status(status.to_status(error))
    assert (back.reason, back.message, back.retry_after_s) == (reason, "what is wrong", 1.5)
    assert dict(back.details) == {"field": "a.b[2]", "count": "3"}


def test_a_status_of_grpc_itself_has_a_reason_too():
    made = status.to_status(LanternError(reasons.UNAVAILABLE, "gone"))
    del made.details[:]
    assert status.from_status(made).reason == reasons.UNAVAILABLE
    made.code = grpc.StatusCode.RESOURCE_EXHAUSTED.value[0]
    assert status.from_status(made).reason == reasons.MESSAGE_TOO_LARGE
    made.code = grpc.StatusCode.DATA_LOSS.value[0]
    assert status.from_status(made).reason == reasons.INTERNAL


@pytest.mark.parametrize("how", ["returns", "raises", "is cancelled"])
async def test_a_background_task_that_ends_ends_the_service(how: str, capsys: pytest.CaptureFixture[str]):
    drained: list[bool] = []

    async def work() -> None:
        if how == "raises":
            raise ValueError("lost")
        if how == "is cancelled":
            raise asyncio.CancelledError

    async def drain() -> None:
        drained.append(True)

    lasting = asyncio.create_task(asyncio.Event().wait())
    with pytest.raises(LanternError) as caught:
        await run_until_signal("host:1", drain, [lasting, asyncio.create_task(work(), name="sweeper")])
    assert caught.value.reason == reasons.INTERNAL
    assert "sweeper" in caught.value.message
    assert drained == [True]
    assert capsys.readouterr().out == '{"address": "host:1"}\n'
    assert not lasting.done()
    lasting.cancel()


def test_settings_say_what_they_cannot_read():
    environment = {
        "LANTERN_A": "1m30s",
        "LANTERN_B": "soon",
        "LANTERN_C": "7",
        "LANTERN_D": "perhaps",
        "LANTERN_E": " ",
    }
    assert settings.duration_s(environment, "LANTERN_A", 5) == 90
    assert settings.integer(environment, "LANTERN_C", 1) == 7
    assert settings.duration_s(environment, "LANTERN_E", 5) == 5
    assert settings.text({}, "LANTERN_F", "x") == "x"
    for read in (settings.duration_s, settings.integer):
        with pytest.raises(InvalidField) as caught:
            read(environment, "LANTERN_B", 1)
        assert caught.value.details["field"] == "LANTERN_B"
    with pytest.raises(InvalidField):
        settings.flag(environment, "LANTERN_D")


def test_an_unknown_setting_is_told_with_its_nearest_name():
    hints = settings.unknown_settings({"LANTERN_LISTN": "x", "OTHER": "y", "LANTERN_LISTEN": "z"}, {"LANTERN_LISTEN"})
    assert hints == ["LANTERN_LISTN is no setting; did you mean LANTERN_LISTEN?"]
