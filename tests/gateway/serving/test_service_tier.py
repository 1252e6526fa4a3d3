"""A request's `service_tier`: lower than its key's class it may be, higher not."""

from __future__ import annotations

import msgspec
import pytest
from msgspec.structs import replace

from contracts.errors import InvalidField
from contracts.request_id import CHAT_PREFIX, answer_id
from contracts.service_class import ServiceClass
from gateway.limits.priorities import Priorities, Priority
from gateway.serving.service_tier import service_class_of
from tests.gateway.serving.client import Client
from tests.gateway.serving.harness import KEY, body, harness

OFFLINE, STANDARD, INTERACTIVE = ServiceClass


@pytest.mark.parametrize("own", ServiceClass)
def test_what_is_left_to_the_key_has_its_class_and_flex_yields(own: ServiceClass) -> None:
    assert [service_class_of(asked, own) for asked in (None, "auto", "default", "flex")] == [own, own, own, OFFLINE]


def test_priority_is_for_those_who_have_it() -> None:
    assert service_class_of("priority", INTERACTIVE) is INTERACTIVE
    for own in (STANDARD, OFFLINE):
        with pytest.raises(InvalidField, match=f"the class of this API key is '{own}'") as caught:
            service_class_of("priority", own)
        assert caught.value.param == "service_tier"


INTERACTIVE_KEY = replace(KEY, priorities=Priorities(chat=Priority(INTERACTIVE, share=300, project_share=50)))


@pytest.mark.parametrize(
    ("more", "priority", "told"),
    [({}, 10, None), ({"service_tier": "auto"}, 10, "priority"), ({"service_tier": "flex"}, -10, "flex")],
)
@pytest.mark.parametrize("stream", [False, True])
async def test_class_and_shares_reach_router_and_engine_and_an_answer_names_its_tier_if_asked(
    more: dict[str, str], priority: int, told: str | None, stream: bool
) -> None:
    async with harness(engines=1) as platform:
        client = Client()
        request = await platform.serve(
            client, body(stream=stream, stream_options={"include_usage": True} if stream else None, **more),
            key=INTERACTIVE_KEY,
        )  # fmt: skip
        (ask,) = platform.router.asks
        assert (ask.priority, ask.share, ask.project_id, ask.project_share) == (
            priority, 3.0, KEY.caller.project_id, 0.5,
        )  # fmt: skip
        (record,) = platform.engines[0].records.values()
        assert msgspec.json.decode(record.body)["priority"] == priority
        events = client.answer.events[:-1] if stream else [client.answer.json]
        assert len(events) > 4 * stream
        assert {event.get("service_tier") for event in events} == {told}
        assert {event["id"] for event in events} == {answer_id(CHAT_PREFIX, request.request_id)}


async def test_what_yields_is_in_no_figure_of_latency() -> None:
    async with harness(engines=1) as platform:
        labels = {"tier": "chat", "length": "short", "model": "m", "pool": "pool", "side": "baseline"}
        for tier, counted in (("flex", None), ("auto", 1.0)):
            await platform.serve(Client(), body(stream=True, service_tier=tier))
            assert platform.sample("slipstream_time_to_first_token_seconds_count", **labels) == counted
            assert platform.sample("slipstream_phase_seconds_count", tier="chat", phase="queue") == counted
