"""`GET /v1/stream-audit` of a real gateway: its stream, its bounds, what it costs."""

from __future__ import annotations

import asyncio
import contextlib
from itertools import pairwise
from typing import Any

import aiohttp
import msgspec
import pytest

from contracts.stream_audit import PATH, AuditEvent
from tests.gateway.slow_platform import SlowPlatform
from tests.waiting import GUARD_S

LONG = {"events": "2", "interval_ms": "60000"}


def asked(platform: SlowPlatform, key: str = "", headers: Any = None, **query: Any) -> Any:
    return platform.session.get(
        platform.url + PATH,
        params={name: str(value) for name, value in query.items()},
        headers={"authorization": f"Bearer {key or platform.key}", **(headers or {})},
    )


async def refusal(response: aiohttp.ClientResponse) -> tuple[int, str, str | None]:
    error = (await response.json())["error"]
    return response.status, error["code"], error["param"]


def events_of(body: bytes) -> list[AuditEvent]:
    *events, done, rest = body.split(b"\n\n")
    assert (done, rest) == (b"data: [DONE]", b"")
    return [msgspec.json.decode(event.removeprefix(b"data: "), type=AuditEvent) for event in events]


async def test_events_are_numbered_paced_and_dressed_as_a_completions(platform: SlowPlatform) -> None:
    async with asked(platform, events=12, interval_ms=15, headers={"x-client-request-id": "mine"}) as response:
        events = events_of(await response.read())
        head = {name.lower(): value for name, value in response.headers.items()}
    assert [event.number for event in events] == list(range(12))
    assert all(later.sent_us - earlier.sent_us >= 15_000 for earlier, later in pairwise(events))
    opening = events[0].opening
    assert opening is not None
    assert {name: head[name] for name in opening.headers} == opening.headers
    assert (opening.request_id, opening.client_request_id) == (head["x-request-id"], "mine")
    assert (opening.http_version, opening.closes, opening.request_headers) == ("1.1", False, ())
    assert all(event.opening is None for event in events[1:])
    async with platform.asked("wide") as completion:
        theirs = {name.lower() for name in completion.headers}
    assert theirs == set(head)


async def test_the_requests_of_a_connection_are_counted(platform: SlowPlatform) -> None:
    async def opening(session: aiohttp.ClientSession) -> Any:
        async with session.get(
            platform.url + PATH, params={"events": "1"}, headers={"authorization": f"Bearer {platform.key}"}
        ) as response:
            return events_of(await response.read())[0].opening

    async with aiohttp.ClientSession() as one, aiohttp.ClientSession() as other:
        first, again, stranger = await opening(one), await opening(one), await opening(other)
    assert (first.request_number, again.request_number, stranger.request_number) == (1, 2, 1)
    assert first.instance == again.instance == stranger.instance


@pytest.mark.parametrize(
    ("query", "code", "param"),
    [
        ({"events": "0"}, "invalid_value", "events"),
        ({"tokens": "5"}, "unknown_parameter", "tokens"),
    ],
)
async def test_what_is_out_of_bounds_is_refused_by_name(
    platform: SlowPlatform, query: dict[str, str], code: str, param: str
) -> None:
    async with asked(platform, **query) as response:
        assert await refusal(response) == (400, code, param)
        row = await platform.trace(response.headers["x-request-id"])
    assert (row["endpoint"], row["status"], row["error_code"]) == ("stream_audit", 400, code)


async def test_nobody_without_a_key_has_one(platform: SlowPlatform) -> None:
    async with asked(platform, "sk-slip-none", **LONG) as response:
        assert (await refusal(response))[0] == 401
    async with platform.session.get(platform.url + PATH) as response:
        assert await refusal(response) == (401, "missing_api_key", None)
    async with platform.session.post(platform.url + PATH) as response:
        assert response.status == 405


async def test_a_key_has_two_at_once_and_a_place_is_free_when_its_client_leaves(platform: SlowPlatform) -> None:
    key = (await platform.add_key()).secret
    async with asked(platform, key, **LONG) as first, asked(platform, key, **LONG) as second:
        assert (first.status, second.status) == (200, 200)
        async with asked(platform, key, **LONG) as third:
            assert (await refusal(third))[:2] == (429, "rate_limit_exceeded")
            assert int(third.headers["retry-after"]) > 1
        async with asked(platform, **LONG) as other:
            assert other.status == 200, "another key has its own"
            other.close()
        first.close()
        async with asyncio.timeout(GUARD_S):
            while True:  # another process notices that a client has gone
                async with asked(platform, key, events=1) as freed:
                    if freed.status == 200:
                        break
        second.close()


async def test_an_organization_has_four_places_whatever_keys_it_has(platform: SlowPlatform) -> None:
    secrets = [(await platform.add_key(new_organization=number == 0)).secret for number in range(3)]
    async with contextlib.AsyncExitStack() as stack:
        for secret in secrets[:2] * 2:
            response = await stack.enter_async_context(asked(platform, secret, **LONG))
            assert response.status == 200
        async with asked(platform, secrets[2], events=1) as fifth:
            error = (await fifth.json())["error"]
            assert (fifth.status, error["code"]) == (429, "rate_limit_exceeded")
            assert error["message"].startswith("Your organization has 4 audit streams open at this instance")
        another = (await platform.add_key(new_organization=True)).secret
        async with asked(platform, another, events=1) as other:
            assert other.status == 200


async def test_it_is_one_request_of_the_keys_limits_and_no_tokens(platform: SlowPlatform) -> None:
    key = (await platform.add_key()).secret
    left = []
    for _ in range(3):
        async with asked(platform, key, events=2, interval_ms=10) as response:
            await response.read()
            names = ("x-ratelimit-remaining-requests", "x-ratelimit-remaining-tokens")
            left.append(tuple(int(response.headers[name]) for name in names))
    requests, tokens = zip(*left, strict=True)
    assert max(requests) - min(requests) <= 2
    assert requests[0] < 1_000_000
    assert set(tokens) == {100_000_000}


async def test_a_limit_refuses_it_as_it_refuses_a_completion(platform: SlowPlatform) -> None:
    minted = await platform.add_key()
    await platform.database.execute(
        "UPDATE gateway.limits SET requests_per_minute = 1 WHERE subject_id ="
        " (SELECT id FROM gateway.api_keys WHERE hash = $1)",
        minted.hash,
    )
    async with asked(platform, minted.secret, events=1) as response:
        await response.read()
        assert response.headers["x-ratelimit-remaining-requests"] == "0"
    async with asked(platform, minted.secret, events=1) as response:
        assert (await refusal(response))[:2] == (429, "rate_limit_exceeded")
        assert response.headers["x-ratelimit-limit-requests"] == "1"
        assert 0 < int(response.headers["retry-after"]) <= 60


async def test_it_is_counted_by_its_own_name(platform: SlowPlatform) -> None:
    async with asked(platform, events=1) as response:
        await response.read()
    async with platform.session.get(f"{platform.metrics_url}/metrics") as response:
        told = await response.text()
    labels = 'code="none",endpoint="stream_audit",over_share="false",status="200",tier="none"'
    assert f"slipstream_requests_total{{{labels}}}" in told


async def test_it_is_documented(platform: SlowPlatform) -> None:
    async with platform.session.get(f"{platform.url}/openapi.json") as response:
        operation = (await response.json())["paths"][PATH]["get"]
    assert {each["name"] for each in operation["parameters"]} == {"events", "interval_ms"}
    assert "text/event-stream" in operation["responses"]["200"]["content"]
