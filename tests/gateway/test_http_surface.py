"""What every URL answers to everybody: errors in OpenAI's shape, health, readiness, and bytes that leave at once."""

from __future__ import annotations

import asyncio
import io
import re
import socket
import time
from typing import Any

import aiohttp
import msgspec
import pytest
import uvloop
from litestar import Litestar
from litestar.testing import AsyncTestClient

from gateway.config import GatewayConfig
from gateway.http.front_page import CONTROL_LINKS, LINKS, front_page
from tests.gateway.served import served
from tests.gateway.slow_platform import SlowPlatform
from tests.waiting import eventually

OVERSIZE = GatewayConfig().max_body_bytes + 1


class Answered(msgspec.Struct, frozen=True):
    status: int
    headers: dict[str, str]
    body: Any


async def send(platform: SlowPlatform, method: str, path: str, **more: Any) -> Answered:
    """More: as of aiohttp."""
    async with platform.session.request(method, platform.url + path, **more) as response:
        raw = await response.read()
        kind = response.headers.get("content-type", "")
        headers = {name.lower(): value for name, value in response.headers.items()}
        return Answered(response.status, headers, msgspec.json.decode(raw) if kind == "application/json" else raw)


def check_error(answer: Answered, status: int, code: str, param: str | None = None) -> str:
    """OpenAI's shape, whole and nothing else; returns the message."""
    assert answer.status == status
    assert answer.headers["content-type"] == "application/json"
    assert answer.headers["x-request-id"].startswith("req_")
    error = answer.body["error"]
    assert set(answer.body) == {"error"}
    assert set(error) == {"message", "type", "param", "code"}
    assert (error["code"], error["param"]) == (code, param)
    message: str = error["message"]
    return message


@pytest.mark.parametrize("path", ["/v2/chat/completions", "/v1/images", "/v1/chat", "/admin", "/schema"])
async def test_an_unknown_url_is_404(platform: SlowPlatform, path: str) -> None:
    for method in ("GET", "POST"):
        answer = await send(platform, method, path)
        assert check_error(answer, 404, "not_found").startswith(f"Unknown request URL: {method} {path}. ")
        assert answer.body["error"]["type"] == "invalid_request_error"


async def test_a_person_is_told_what_this_is_and_where_to_go(platform: SlowPlatform) -> None:
    for accept, kind in (("text/html,application/xhtml+xml;q=0.9,*/*;q=0.8", "text/html"), ("*/*", "text/plain")):
        answer = await send(platform, "GET", "/", headers={"accept": accept})
        assert (answer.status, answer.headers["content-type"].partition(";")[0]) == (200, kind)
        page = answer.body.decode()
        assert "/v1" in page
        models = (await send(platform, "GET", "/v1/models", headers={"authorization": f"Bearer {platform.key}"})).body
        assert not [model["id"] for model in models["data"] if model["id"] in page], "strangers learn no model's name"
        for path, _ in (*CONTROL_LINKS, *LINKS):
            assert path in page
            assert (await send(platform, "GET", path)).status in (200, 503)


async def test_the_front_page_does_not_link_a_control_plane_that_is_elsewhere() -> None:
    async with AsyncTestClient(Litestar([front_page(lambda _: False)])) as client:
        page = (await client.get("/")).text
    assert all(f"\n{path} " in page for path, _ in LINKS)
    assert not [path for path, _ in CONTROL_LINKS if f"\n{path} " in page]


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", "/"),
        ("GET", "/v1/chat/completions"),
        ("PUT", "/v1/completions"),
        ("DELETE", "/v1/models"),
        ("POST", "/healthz"),
        ("PATCH", "/v1/chat/completions"),
    ],
)
async def test_a_wrong_method_is_405_and_says_which_are_right(platform: SlowPlatform, method: str, path: str) -> None:
    answer = await send(platform, method, path)
    said = check_error(answer, 405, "method_not_allowed")
    assert re.fullmatch(rf"{method} is not allowed for {path}; use (GET|POST|GET or HEAD)\.", said)
    assert method not in answer.headers["allow"]
    assert ("GET" in answer.headers["allow"]) == (path in ("/", "/v1/models", "/healthz"))
    assert ("HEAD" in answer.headers["allow"]) == ("GET" in answer.headers["allow"])


async def test_options_lists_every_method_of_a_path_without_a_key_and_allows_no_page(platform: SlowPlatform) -> None:
    for path, methods in (
        ("/v1/chat/completions", "OPTIONS, POST"),
        ("/v1/models", "GET, HEAD, OPTIONS"),
        ("/v1/conversations/conv_1", "DELETE, GET, HEAD, OPTIONS, POST"),
    ):
        page = {"origin": "https://app.example.com", "access-control-request-method": "POST"}
        answer = await send(platform, "OPTIONS", path, headers=page)
        assert (answer.status, answer.headers["allow"], answer.body) == (204, methods, b"")
        assert answer.headers["x-request-id"].startswith("req_")
        assert not [name for name in answer.headers if name.startswith("access-control-")]
    assert "Unknown request URL: OPTIONS /v1/images." in check_error(
        await send(platform, "OPTIONS", "/v1/images"), 404, "not_found"
    )


async def test_a_body_that_is_too_large_is_413(platform: SlowPlatform) -> None:
    key = {"authorization": f"Bearer {platform.key}"}
    told = await send(platform, "POST", "/v1/chat/completions", data=io.BytesIO(b"x" * OVERSIZE), headers=key)
    assert f"larger than {OVERSIZE - 1} bytes" in check_error(told, 413, "request_too_large")

    async def in_pieces() -> Any:
        for _ in range(OVERSIZE // 65_536 + 1):
            yield b"x" * 65_536

    check_error(
        await send(platform, "POST", "/v1/completions", data=in_pieces(), headers=key), 413, "request_too_large"
    )


async def test_the_largest_body_that_is_allowed_is_read(platform: SlowPlatform) -> None:
    key = {"authorization": f"Bearer {platform.key}"}
    answer = await send(
        platform, "POST", "/v1/chat/completions", data=io.BytesIO(b'{"model":"'.ljust(OVERSIZE - 1, b"x")), headers=key
    )
    check_error(answer, 400, "invalid_json")


@pytest.mark.parametrize("header", [None, "", "Bearer", "Bearer ", "Basic abc", "sk-slip-x"])
async def test_a_missing_key_is_401_before_anything_is_read(platform: SlowPlatform, header: str | None) -> None:
    headers = {} if header is None else {"authorization": header}
    for method, path in (("POST", "/v1/chat/completions"), ("POST", "/v1/completions"), ("GET", "/v1/models")):
        answer = await send(platform, method, path, headers=headers, data=b"{" if method == "POST" else None)
        check_error(answer, 401, "missing_api_key")
        assert answer.headers["www-authenticate"] == "Bearer"


async def test_anthropics_paths_are_served_with_its_own_key_header_and_query(platform: SlowPlatform) -> None:
    key = {"x-api-key": platform.key, "anthropic-version": "2023-06-01"}
    asked: dict[str, Any] = {"model": "wide", "messages": [{"role": "user", "content": "hi"}]}
    counted = await send(platform, "POST", "/v1/messages/count_tokens?beta=true", headers=key, json=asked)
    assert (counted.status, list(counted.body)) == (200, ["input_tokens"])
    answer = await send(platform, "POST", "/v1/messages?beta=true", headers=key, json={**asked, "max_tokens": 4})
    assert (answer.status, answer.body["stop_reason"]) == (200, "max_tokens")
    charge = await platform.charge(answer.headers["request-id"])
    assert (charge["endpoint"], charge["completion_tokens"]) == ("messages", 4)


async def test_models_are_listed_and_named_when_one_is_missing(platform: SlowPlatform) -> None:
    key = {"authorization": f"Bearer {platform.key}"}
    listed = await send(platform, "GET", "/v1/models", headers=key)
    names = ("wide", "gaps", "narrow", "vectors", "ranks")
    assert (await send(platform, "GET", "/v1/models", headers={"x-api-key": platform.key})).body == listed.body
    assert [(model["id"], model["object"]) for model in listed.body["data"]] == [(name, "model") for name in names]
    assert [model.get("description") for model in listed.body["data"]] == ["It says anything.", *[None] * 4]
    assert (await send(platform, "GET", "/v1/models/narrow", headers=key)).body["tier"] == "autocomplete"
    # `gaps` has a tokenizer that heals, and its setting is off
    assert not [model for model in listed.body["data"] if "healing" in model]
    for model in listed.body["data"]:
        assert 0 < model["created"] <= time.time()
        assert (await send(platform, "GET", f"/v1/models/{model['id']}", headers=key)).body == model
    missing = await send(platform, "GET", "/v1/models/meta/llama", headers=key)
    assert "'meta/llama' does not exist. Available: wide, gaps, narrow, vectors, ranks." in check_error(
        missing, 404, "model_not_found", "model"
    )


async def test_health_needs_no_key_and_no_part(platform: SlowPlatform) -> None:
    async with platform.links["postgres"].down(), platform.links["valkey"].down(), platform.links["router"].down():
        answer = await send(platform, "GET", "/healthz")
    assert (answer.status, answer.body) == (200, b"ok")
    await ready(platform, missing=set())


async def ready(platform: SlowPlatform, *, missing: set[str]) -> Answered:
    """The answer of /readyz once it names `missing`."""

    async def so() -> Answered | None:
        answer = await send(platform, "GET", "/readyz")
        parts = answer.body["parts"]
        assert answer.body["ready"] == all(parts.values())
        lacks = {name for name, there in parts.items() if not there}
        return answer if lacks == missing else None

    return await eventually(so)


@pytest.mark.parametrize(
    ("link", "parts"), [("postgres", {"database", "keys"}), ("valkey", {"limits"}), ("router", {"router"})]
)
async def test_readiness_names_the_part_that_is_missing_until_it_is_back(
    platform: SlowPlatform, link: str, parts: set[str]
) -> None:
    whole = await ready(platform, missing=set())
    assert (whole.status, set(whole.body["parts"])) == (
        200,
        {"database", "keys", "limits", "journal", "router", "models", "accepting"},
    )
    async with platform.links[link].down():
        assert (await ready(platform, missing=parts)).status == 503
    assert (await ready(platform, missing=set())).status == 200


async def test_metrics_need_no_key(platform: SlowPlatform) -> None:
    async with platform.session.get(f"{platform.metrics_url}/metrics") as answer:
        assert answer.status == 200
        assert answer.content_type == "text/plain"
        body = await answer.text()
    assert "slipstream_requests_total{" in body
    assert "slipstream_journal_healthy 1.0" in body
    assert "slipstream_limits_mode 0.0" in body
    assert "process_resident_memory_bytes" in body


def test_bytes_of_a_response_leave_at_once() -> None:
    """With Nagle's algorithm the second of two small events waits up to 40 ms for the client's acknowledgement."""

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"one", "more_body": True})
        while (await receive())["type"] != "http.disconnect":
            pass

    async def options() -> list[int]:
        async with served(app) as running:
            reader, _ = await running.connect(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
            await reader.readuntil(b"one")
            sockets = [each.transport.get_extra_info("socket") for each in running.server.server_state.connections]
            return [each.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) for each in sockets]

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        assert runner.run(options()) == [1]


async def test_a_client_that_sends_half_a_request_and_leaves_leaves_nothing_behind(platform: SlowPlatform) -> None:
    async def half() -> Any:
        yield b'{"model":'
        raise ConnectionResetError

    with pytest.raises((aiohttp.ClientError, ConnectionResetError)):
        await send(
            platform, "POST", "/v1/chat/completions", data=half(), headers={"authorization": f"Bearer {platform.key}"}
        )
    assert (await platform.ask()).status == 200


@pytest.mark.parametrize("path", ["/openapi.json", "/admin/v1/openapi.json"])
async def test_a_document_is_made_once_and_not_sent_again_to_who_has_it(platform: SlowPlatform, path: str) -> None:
    first = await send(platform, "GET", path)
    assert first.status == 200
    assert first.body["openapi"].startswith("3.")
    again = await send(platform, "GET", path, headers={"if-none-match": first.headers["etag"]})
    assert (again.status, again.body, again.headers["etag"]) == (304, b"", first.headers["etag"])
    assert (await send(platform, "GET", path, headers={"if-none-match": '"other"'})).body == first.body
