"""Web pages of named origins may call the API, and no others; the admin API's cookie is for none."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest

from contracts.errors import ConfigError
from gateway.http.client_connection import SCOPE_KEY
from gateway.http.cross_origin import CrossOrigin
from gateway.http.loop_shares import LoopShares
from gateway.http.pace import Pace
from gateway.http.page_origins import checked_origins
from slipstream.control_plane import ControlPlane
from tests.gateway.served import served

PAGE = "https://app.example.com"
PATHS = ("/v1/chat/completions", "/v1/models", "/admin/v1/me", "/console/", "//admin/v1/me", "//console/")
ALLOWED = "access-control-allow-origin"


def no_control() -> Any:
    """It is asked by its addresses alone."""
    raise NotImplementedError


async def answers(scope: Any, receive: Any, send: Any) -> None:
    """Inference past ASGI, the rest by it."""
    while (await receive())["more_body"]:
        pass
    if scope["path"] == PATHS[0]:
        connection = scope[SCOPE_KEY]
        connection.start(200, [(b"content-type", b"text/event-stream"), (b"x-request-id", b"req_1")])
        connection.end(b"data: 1\n\n")
        return
    await send({"type": "http.response.start", "status": 200, "headers": [(b"x-request-id", b"req_1")]})
    await send({"type": "http.response.body", "body": b"ok"})


@pytest.fixture
async def url(request: pytest.FixtureRequest) -> AsyncIterator[str]:
    app = CrossOrigin(answers, checked_origins(request.param), Pace(LoopShares()), ControlPlane(no_control).serves)
    async with served(app) as server:
        yield f"http://127.0.0.1:{server.port}"


@pytest.mark.parametrize("url", [(PAGE, "http://localhost:5173")], indirect=True)
async def test_a_named_page_reads_answers_of_the_api_and_of_nothing_else(url: str) -> None:
    async with aiohttp.ClientSession(headers={"origin": PAGE}) as page:
        for path in PATHS:
            async with page.post(url + path) as answer:
                assert answer.status == 200
                told = answer.headers.getall(ALLOWED, [])
                if path.startswith("/v1"):
                    assert told == [PAGE]
                    assert answer.headers["vary"] == "origin"
                    assert "x-request-id" in answer.headers["access-control-expose-headers"]
                else:
                    assert told == []
    for headers in ({}, {"origin": "https://evil.example.com"}, {"origin": f"{PAGE}.evil.com"}, {"origin": "null"}):
        async with aiohttp.ClientSession(headers=headers) as other, other.post(url + PATHS[0]) as answer:
            assert (answer.status, ALLOWED in answer.headers) == (200, False)


@pytest.mark.parametrize("url", [(PAGE,)], indirect=True)
async def test_a_preflight_is_answered_for_a_named_page_alone(url: str) -> None:
    asked = {"access-control-request-method": "POST", "access-control-request-headers": "authorization,content-type"}
    async with aiohttp.ClientSession() as session:
        async with session.options(url + PATHS[0], headers={"origin": PAGE, **asked}) as answer:
            assert answer.status == 204
            assert answer.headers[ALLOWED] == PAGE
            assert answer.headers["access-control-allow-headers"] == "authorization,content-type"
            assert "POST" in answer.headers["access-control-allow-methods"]
            assert await answer.read() == b""
        for path, origin in ((PATHS[0], "https://evil.example.com"), *((path, PAGE) for path in PATHS[2:])):
            async with session.options(url + path, headers={"origin": origin, **asked}) as answer:
                assert ALLOWED not in answer.headers


@pytest.mark.parametrize("url", [("*",)], indirect=True)
async def test_all_origins_may_be_named(url: str) -> None:
    async with aiohttp.ClientSession(headers={"origin": "null"}) as page, page.get(url + PATHS[1]) as answer:
        assert answer.headers[ALLOWED] == "*"
        assert "vary" not in answer.headers


@pytest.mark.parametrize(
    "origin", ["app.example.com", "https://app.example.com/", "https://App.example.com", "ftp://a", "https://", "null"]
)
def test_a_setting_that_no_browser_would_send_stops_the_start(origin: str) -> None:
    with pytest.raises(ConfigError, match=r"gateway\.cors_origins\[1\]: .*write a scheme and a host"):
        checked_origins((PAGE, origin))
