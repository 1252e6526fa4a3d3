"""Combines the admin API, the console and batches: their parts, their routes and their documents."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import quote

from litestar.datastructures import State
from litestar.types import ControllerRouterHandler

from control.api.services import AdminServices
from control.batches.api import BatchApi
from control.batches.routes import batch_routes
from control.console.console import Console
from control.console.openapi import with_console
from control.console.pages import DIST, Pages, pages_route
from control.console.routes import console_routes
from control.moved_paths import announcing, present
from control.openai_organization.operations import OPENAI_PREFIX, openai_operations, plain_names
from control.openapi import admin_document
from control.operations import OPERATIONS, PREFIX, admin_operations
from control.router_view.control_client import RouterControl
from gateway.app import SERVED
from gateway.http.document import document_route
from gateway.http.routing import routes
from gateway.wire.config import RequestConfig

ADMINISTERED = frozenset(each.path for each in OPERATIONS)
"""Paths of the admin API's operations, below its prefix."""


class ControlRoutes:
    """The control plane's ASGI application and its parts."""

    def __init__(
        self,
        services: AdminServices,
        console: Console,
        router: RouterControl,
        batches: BatchApi,
        requests: RequestConfig,
        max_body_bytes: int,
        own: Sequence[ControllerRouterHandler] = (),
        served: Mapping[str, str] = SERVED,
    ) -> None:
        """router, batches: start and stop with the application. requests, max_body_bytes: limits of a body. own:
        further routes, on a separate port. served: paths of that port, for advice."""
        self._router = router
        self._batches = batches
        self._admin = services.admin
        self._console = console
        self._app = routes(
            [
                admin_operations(requests),
                openai_operations(requests),
                *console_routes(requests),
                *batch_routes(batches, requests),
                document_route(f"{PREFIX}/openapi.json", _document),
                *([pages_route(Pages.read(DIST))] if console.config.enabled else ()),
                *own,
            ],
            State({"services": services, "console": console}, deep_copy=False),
            max_body_bytes,
            served,
            ADMINISTERED,
        )

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Serve one request."""
        if scope.get("path", "").startswith(OPENAI_PREFIX):
            scope["query_string"] = plain_names(scope["query_string"])
        elif (path := present(scope.get("path", ""))) is not None:
            scope.update(path=path, raw_path=quote(path).encode())
            send = announcing(send, path)
        await self._app(scope, receive, send)

    async def start(self) -> None:
        """Prepare for the database, and for hashing passwords."""
        await self._admin.start()
        await self._batches.start()
        self._console.start()

    async def stop(self) -> None:
        """Stop all parts. Requests in progress fail. Idempotent."""
        await self._console.stop()
        await self._batches.stop()
        await self._admin.stop()
        await self._router.stop()


def _document() -> bytes:
    return with_console(admin_document())
