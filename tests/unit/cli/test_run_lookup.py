"""Which run a person means: run id, beginning of one, workflow id.

Method: a fake client with a list of runs.
"""

import pytest
from fake_client import FakeClient, make_run

from lantern.cli.run_lookup import find_run_id
from lantern_kernel import reasons
from lantern_kernel.errors import LanternError

NEW = "0192f0c1-2222-7abc-8def-000000000002"
OLD = "0192f0c1-1111-7abc-8def-000000000001"


async def test_a_full_run_id_is_taken_as_it_is_without_a_question():
    client = FakeClient()
    assert await find_run_id(client, NEW) == NEW
    assert client.calls == []


@pytest.mark.parametrize("prefix", ["0192f0c1-2", "0192f0c1-2222-7abc-8def-00000000000"])
async def test_the_beginning_of_an_id(prefix: str):
    client = FakeClient(runs=[make_run(NEW), make_run(OLD)])
    assert await find_run_id(client, prefix) == NEW


async def test_a_beginning_is_looked_for_on_all_pages():
    client = FakeClient(runs=[make_run(NEW), make_run(OLD)], page_rows_max=1)
    assert await find_run_id(client, "0192f0c1-1") == OLD


async def test_a_beginning_that_fits_two_names_both():
    client = FakeClient(runs=[make_run(NEW), make_run(OLD)])
    with pytest.raises(LanternError, match="fits more than one") as caught:
        await find_run_id(client, "0192")
    assert caught.value.reason == reasons.INVALID_FIELD
    assert NEW in caught.value.message
    assert OLD in caught.value.message


@pytest.mark.parametrize("text", ["0193", "019", "zzz", "no such workflow", "|", ""])
async def test_what_fits_nothing_is_not_found(text: str):
    client = FakeClient(runs=[make_run(NEW)])
    with pytest.raises(LanternError) as caught:
        await find_run_id(client, text)
    assert caught.value.reason == reasons.RUN_NOT_FOUND


async def test_a_workflow_id_means_its_open_run_else_its_newest():
    closed, opened = make_run(NEW, workflow_id="order-1"), make_run(OLD, workflow_id="order-1", state="WAITING")
    assert await find_run_id(FakeClient(runs=[closed, opened]), "order-1") == OLD
    older = make_run(OLD, workflow_id="order-1", state="FAILED")
    assert await find_run_id(FakeClient(runs=[closed, older]), "order-1") == NEW


async def test_a_workflow_id_that_looks_like_a_beginning_wins():
    client = FakeClient(runs=[make_run(NEW), make_run(OLD, workflow_id="0192")])
    assert await find_run_id(client, "0192") == OLD
