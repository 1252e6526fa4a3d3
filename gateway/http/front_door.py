"""Passes inference requests directly to their endpoints, and all others to the routes at a limited pace.

Routing, dependency injection and response wrapping are worth their cost everywhere except on the path of every token.
There they cost as much as the rest of the gateway's HTTP (docs/adr/0006), and Litestar's own bypass costs 5 % (0016).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from gateway.http.pace import Pace


class FrontDoor:
    """The ASGI application of a gateway. endpoints: by path, for POST. pace: the pace of requests to the routes. named:
    for paths that contain a name, functions that return its endpoint, by the text before and after the name."""

    def __init__(
        self,
        endpoints: Mapping[str, Any],
        routes: Any,
        pace: Pace,
        named: Mapping[tuple[str, str], Callable[[str], Any]] | None = None,
    ) -> None:
        self._endpoints = endpoints
        self._routes = routes
        self._pace = pace
        self._named = dict(named or {})

    def __call__(self, scope: Any, receive: Any, send: Any) -> Awaitable[None]:
        """Serve one request, or uvicorn's lifespan. No coroutine of its own, which would resume with each wait."""
        served: Awaitable[None]
        if scope["type"] != "http":
            served = self._routes(scope, receive, send)
            return served
        if scope["method"] == "POST":
            endpoint = self._endpoints.get(scope["path"]) or self._of_name(scope["path"])
            if endpoint is not None:
                served = endpoint(scope, receive, send)
                return served
        if scope["method"] == "HEAD":
            scope = {**scope, "method": "GET"}  # uvicorn, which keeps the request's own scope, sends no body
        return self._pace.serve(self._routes, scope, receive, send)

    def _of_name(self, path: str) -> Any:
        for (prefix, suffix), endpoint_of in self._named.items():
            if path.startswith(prefix) and path.endswith(suffix) and len(path) > len(prefix) + len(suffix):
                return endpoint_of(path[len(prefix) : -len(suffix)])
        return None
