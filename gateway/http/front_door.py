"""Passes requests for inference straight to their endpoint, and all others to the routes at a limited pace.

Routing, dependency injection and response wrapping are worth their price everywhere but here: on the path of every
token they cost as much as the rest of the gateway's HTTP (docs/adr/0006), and Litestar's own way past them 5 % (0016).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from gateway.http.pace import Pace


class FrontDoor:
    """The ASGI application of a gateway. endpoints: by path, for POST. pace: of all requests to the routes. named:
    endpoints of paths that hold a name, by the text before and after the name: returns that name's endpoint.
    """

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

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Serve one request, or uvicorn's lifespan."""
        if scope["type"] != "http":
            await self._routes(scope, receive, send)
            return
        if scope["method"] == "POST":
            endpoint = self._endpoints.get(scope["path"]) or self._of_name(scope["path"])
            if endpoint is not None:
                await endpoint(scope, receive, send)
                return
        if scope["method"] == "HEAD":
            scope = {**scope, "method": "GET"}  # uvicorn, which keeps the request's own scope, sends no body
        await self._pace.serve(self._routes, scope, receive, send)

    def _of_name(self, path: str) -> Any:
        for (before, behind), endpoint_of in self._named.items():
            if path.startswith(before) and path.endswith(behind) and len(path) > len(before) + len(behind):
                return endpoint_of(path[len(before) : -len(behind)])
        return None
