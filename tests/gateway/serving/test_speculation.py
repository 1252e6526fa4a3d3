"""A lease says whether its engine may draft: the embedded engine is told, others are sent nothing of it; and what they
drafted is counted by model."""

from __future__ import annotations

import pytest

from tests.gateway.serving.client import Client
from tests.gateway.serving.harness import body, harness


@pytest.mark.parametrize("driver", ["embedded", "sglang", "vllm", "openai"])
@pytest.mark.parametrize("no_drafts", [True, False])
async def test_the_engine_is_told_what_the_lease_says_where_it_understands_it(driver: str, no_drafts: bool) -> None:
    async with harness(engines=1, driver=driver) as platform:
        platform.router.no_drafts = no_drafts
        client = Client()
        await platform.serve(client, body(stream=True))
        assert client.answer.status == 200
        (record,) = platform.engines[0].records.values()
        assert (b'"speculation":false' in bytes(record.body)) is (no_drafts and driver == "embedded")


async def test_what_was_drafted_is_counted_by_model() -> None:
    async with harness() as platform:
        platform.script(tokens=4, prompt_tokens=7, drafts=9, accepted_drafts=4)
        for _ in range(2):
            await platform.serve(Client(), body(stream=True))
        for kind, count in (("proposed", 18), ("accepted", 8)):
            assert platform.sample("slipstream_draft_tokens_total", model="m", kind=kind) == count
