"""Reports and Tabby's questions over real HTTP, at a gateway with everything behind it."""

from __future__ import annotations

import time
from typing import Any

import msgspec
import pytest

from contracts.dated_request_id import DAY_S
from contracts.dated_request_id import mint as mint_request_id
from gateway.auth.keys import ADMIN_PREFIX, mint
from tests.gateway.slow_platform import SlowPlatform

TABBY = "Node.js/v20.1.0 tabby-agent/1.8.0 Visual-Studio-Code/1.96.2 TabbyML.vscode-tabby/1.12.0"
SECRET_TEXT = "the user's own words"


async def call(platform: SlowPlatform, method: str, path: str, body: Any = None, **headers: str) -> tuple[int, bytes]:
    """Status and body. Without other headers: by the platform's key."""
    given = headers or {"authorization": f"Bearer {platform.key}"}
    data = body if isinstance(body, bytes) or body is None else msgspec.json.encode(body)
    async with platform.session.request(method, platform.url + path, data=data, headers=given) as response:
        return response.status, await response.read()


async def completion(platform: SlowPlatform, **headers: str) -> dict[str, Any]:
    """A whole answer of the autocomplete model."""
    body = {"model": "narrow", "prompt": "mock:" + msgspec.json.encode({"tokens": 6}).decode(), "max_tokens": 50}
    status, answer = await call(
        platform, "POST", "/v1/completions", body, authorization=f"Bearer {platform.key}", **headers
    )
    assert status == 200, answer
    return dict(msgspec.json.decode(answer))


async def test_what_an_editor_reports_joins_the_completion(platform: SlowPlatform) -> None:
    answer = await completion(platform, **{"user-agent": TABBY})
    request_id = "req_" + answer["id"].removeprefix("cmpl-")
    trace = await platform.trace(request_id)
    assert (trace["client"], trace["language"], trace["characters"]) == (
        "tabby-agent",
        None,
        len(answer["choices"][0]["text"]),
    )
    path = f"/v1/completions/{answer['id']}/events"
    for kind, more in (("view", {}), ("select_part", {"characters": 4}), ("select_part", {"characters": 9})):
        assert await call(platform, "POST", path, {"type": kind, "view_id": "v", **more}) == (202, b"")
    shown = {"type": "select", "completion_id": answer["id"], "choice_index": 0, "view_id": "v2", "elapsed": 812.4}
    for query in ("", "?select_kind=line"):  # by the other header, as some clients send their key
        body = {**shown, "select_kind": "line", "new_in_a_later_version": SECRET_TEXT}
        assert await call(platform, "POST", f"/v1/events{query}", body, **{"x-api-key": platform.key}) == (200, b"")
    rows = await platform.events(request_id, 4)
    assert [(row["type"], row["view_id"], row["characters"], row["elapsed_ms"]) for row in rows] == [
        ("select", "v2", None, 812),
        ("select_part", "v", 9, None),
        ("select_part", "v2", None, 812),
        ("view", "v", None, None),
    ]
    assert {row["project_id"] for row in rows} == {trace["project_id"]}
    assert SECRET_TEXT not in str([list(row.values()) for row in rows])


async def test_the_request_id_of_the_header_will_do(platform: SlowPlatform) -> None:
    request_id = (await platform.ask("narrow", stream=False)).request_id
    assert (await call(platform, "POST", f"/v1/completions/{request_id}/events", {"type": "dismiss"}))[0] == 202
    assert [row["type"] for row in await platform.events(request_id, 1)] == ["dismiss"]


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"type": "hover"}, "type"),
        ({}, "type"),
        ({"type": "view", "text": SECRET_TEXT}, "text"),
        ({"type": "view", "view_id": SECRET_TEXT}, "view_id"),
        ({"type": "view", "view_id": "v\n"}, "view_id"),
        ({"type": "view", "choice_index": 128}, "choice_index"),
        ({"type": "select", "characters": -1}, "characters"),
        ({"type": "select", "characters": 10**7}, "characters"),
        ({"type": "view", "elapsed_ms": 10**12}, "elapsed_ms"),
    ],
)
async def test_what_cannot_be_a_report_is_refused_by_name(
    platform: SlowPlatform, body: dict[str, Any], param: str
) -> None:
    path = f"/v1/completions/{mint_request_id()}/events"
    status, answer = await call(platform, "POST", path, body)
    assert (status, msgspec.json.decode(answer)["error"]["param"]) == (400, param)


async def test_tabbys_refusals(platform: SlowPlatform) -> None:
    good = {"type": "view", "completion_id": f"cmpl-{mint_request_id()[4:]}", "choice_index": 0}
    assert (await call(platform, "POST", "/v1/events", good))[0] == 200
    for wrong in ({"type": "hover"}, {"completion_id": "x"}, {"completion_id": None}, {"elapsed": -1}):
        assert (await call(platform, "POST", "/v1/events", {**good, **wrong}))[0] == 400, wrong
    assert (await call(platform, "POST", "/v1/events", b"{"))[0] == 400


async def test_an_id_that_can_be_none_is_not_found_and_a_large_body_is_not_read(platform: SlowPlatform) -> None:
    status, answer = await call(platform, "POST", "/v1/completions/cmpl-1/events", {"type": "view"})
    assert (status, msgspec.json.decode(answer)["error"]["code"]) == (404, "not_found")
    assert b"x-request-id" in answer
    path = f"/v1/completions/{mint_request_id()}/events"
    assert (await call(platform, "POST", path, {"type": "view", "view_id": "v" * 20_000}))[0] == 413


@pytest.mark.parametrize("days", [2, 365 * 60, -32])
async def test_an_id_of_another_time_is_refused_by_name(platform: SlowPlatform, days: int) -> None:
    request_id = mint_request_id(time.time() + days * DAY_S)
    for path, body in (
        (f"/v1/completions/{request_id}/events", {"type": "view"}),
        ("/v1/events", {"type": "view", "completion_id": request_id, "choice_index": 0}),
    ):
        status, answer = await call(platform, "POST", path, body)
        assert (status, msgspec.json.decode(answer)["error"]["param"]) == (400, "completion_id"), path
    assert await platform.events(request_id, 0) == []


ROUTES = (
    ("POST", "/v1/completions/req_01a202d70761d36dcae2f931f17a0b74bfb1/events"),
    ("POST", "/v1/events"),
    ("GET", "/v1/health"),
    ("POST", "/v1/health"),
    ("GET", "/v1beta/server_setting"),
)


@pytest.mark.parametrize(("method", "path"), ROUTES)
async def test_every_route_wants_a_key_for_completions(platform: SlowPlatform, method: str, path: str) -> None:
    for headers, status in (
        ({"accept": "*/*"}, 401),
        ({"x-api-key": ""}, 401),
        ({"authorization": f"Bearer {mint(platform.pepper).secret}"}, 401),
        ({"x-api-key": mint(platform.pepper, ADMIN_PREFIX).secret}, 401),
    ):
        assert (await call(platform, method, path, b"{", **headers))[0] == status, headers
    chat_only = await platform.add_key()
    await platform.database.execute("UPDATE gateway.api_keys SET scopes = '{chat}' WHERE hash = $1", chat_only.hash)
    status, answer = await call(platform, method, path, b"{", authorization=f"Bearer {chat_only.secret}")
    assert (status, msgspec.json.decode(answer)["error"]["code"]) == (403, "insufficient_scope")


async def test_tabbys_plug_in_finds_what_it_asks_first(platform: SlowPlatform) -> None:
    for method in ("GET", "POST"):
        status, answer = await call(platform, method, "/v1/health")
        health = msgspec.json.decode(answer)
        assert (status, health["model"], health["version"]["git_describe"]) == (200, "gaps", "v0.30.0")
        assert {"device", "cuda_devices", "models", "arch", "cpu_info", "cpu_count"} < set(health)
    status, answer = await call(platform, "GET", "/v1beta/server_setting")
    assert (status, msgspec.json.decode(answer)) == (200, {"disable_client_side_telemetry": True})
    assert (await call(platform, "PUT", "/v1/health"))[0] == 405
