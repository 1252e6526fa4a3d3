"""Requests an attempt's usage from its engine, after the gateway that sent it has crashed (`recovery.AskEngine`)."""

from __future__ import annotations

import contextlib

from contracts.errors import EngineFailed, ServiceError
from contracts.usage import Usage
from engines.drivers import registry as drivers
from engines.http.engine_connections import EngineConnections
from gateway.metering.journal.records import earlier_engine_request_id, engine_request_id


class EngineUsage:
    """Stops an attempt that may still run, and fetches its final count."""

    def __init__(self, connections: EngineConnections, timeout_s: float) -> None:
        """timeout_s: the limit for each of the two small requests."""
        self._connections = connections
        self._timeout_s = timeout_s

    async def __call__(self, url: str, driver: str, request_id: str, attempt: int) -> Usage | None:
        """The final usage; None if this dialect has no such query.

        Raises EngineFailed or EngineTimeout if the engine is unreachable, or is still stopping and has no final count.
        """
        dialect, queried = drivers.get(driver), False
        name, earlier = engine_request_id(request_id, attempt), earlier_engine_request_id(request_id, attempt)
        # the journal may be an earlier release's
        for engine_id in (name,) if name == earlier else (name, earlier):
            if abort := dialect.abort(engine_id):
                with contextlib.suppress(ServiceError):
                    await self._connections.fetch(url, abort, self._timeout_s)
            query = dialect.usage_by_id(engine_id)
            if query is None:
                continue  # the other name must be stopped as well
            queried = True
            status, body = await self._connections.fetch(url, query, self._timeout_s)
            usage = dialect.parse_usage_by_id(status, body)
            if usage is not None:
                return usage
        if not queried:
            return None
        raise EngineFailed(f"The engine has no final count for {name}.", detail=url)
