"""Which application a request is led to."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.front_door import FrontDoor


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

    door = FrontDoor({"/v1/completions": app("completions")}, app("routes"), {("/v1/engines/", "/completions"): app})
    await door({"type": "http", "method": method, "path": path}, None, None)

    assert reached == [led_to]


async def test_head_is_answered_by_what_answers_get_and_uvicorn_still_knows_of_it() -> None:
    methods: list[str] = []

    async def routes(scope: Any, receive: Any, send: Any) -> None:
        methods.append(scope["method"])

    scope = {"type": "http", "method": "HEAD", "path": "/healthz"}
    await FrontDoor({}, routes)(scope, None, None)

    assert methods == ["GET"]
    assert scope["method"] == "HEAD"  # by which uvicorn sends no body
