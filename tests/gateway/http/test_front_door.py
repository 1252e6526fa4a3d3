"""Which application a request is led to."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.http.client_connection import SCOPE_KEY
from gateway.http.front_door import FrontDoor
from gateway.http.loop_shares import LoopShares
from gateway.http.pace import Pace


class Client:
    """A connection without a network."""

    network = organization_id = ""
    on_gone = None
    gone = counted = False


def asked(method: str, path: str) -> dict[str, Any]:
    return {"type": "http", "method": method, "path": path, "headers": [], SCOPE_KEY: Client()}


@pytest.mark.parametrize(
    ("method", "path", "led_to"),
    [
        ("POST", "/v1/completions", "completions"),
        ("GET", "/v1/completions", "routes"),
        ("POST", "/v1/engines/code/completions", "code"),
        ("POST", "/v1/engines/own/code/completions", "own/code"),
        ("POST", "/v1/engines//completions", "routes"),
        ("POST", "/v1/engines/completions", "routes"),
        ("POST", "/v1/engines/code", "routes"),
        ("GET", "/v1/engines/code/completions", "routes"),
        ("POST", "/v1/other", "routes"),
    ],
)
async def test_a_request_is_led_by_method_and_path(method: str, path: str, led_to: str) -> None:
    reached: list[str] = []

    def app(name: str) -> Any:
        async def serve(scope: Any, receive: Any, send: Any) -> None:
            reached.append(name)

        return serve

    named = {("/v1/engines/", "/completions"): app}
    door = FrontDoor({"/v1/completions": app("completions")}, app("routes"), Pace(LoopShares()), named)
    await door(asked(method, path), None, None)

    assert reached == [led_to]


async def test_head_is_answered_by_what_answers_get_and_uvicorn_still_knows_of_it() -> None:
    methods: list[str] = []

    async def routes(scope: Any, receive: Any, send: Any) -> None:
        methods.append(scope["method"])

    scope = asked("HEAD", "/healthz")
    await FrontDoor({}, routes, Pace(LoopShares()))(scope, None, None)

    assert methods == ["GET"]
    assert scope["method"] == "HEAD"  # by which uvicorn sends no body
