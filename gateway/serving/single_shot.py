"""Serves a request without output on an engine, with one body in each direction. The client gets nothing before the
journal record is closed, so a request is billed only if its client can have the whole response. The exception is a
disk that fails then: the client gets an error, and the record is written and billed later."""

from __future__ import annotations

import asyncio

from contracts.lease import Lease
from contracts.pooling import EmbeddingWork, ScoringWork
from contracts.usage import Finish, Usage
from engines.http.engine_connections import EngineConnections
from engines.http.engine_stream import EngineStream, silent
from engines.http.origin import Origin
from gateway.serving.attempt import Attempt
from gateway.serving.collaborators import Drivers
from gateway.serving.config import ServingConfig
from gateway.serving.engine_refusal import refusal


class SingleShot:
    """Serves attempts whose prepared request holds `PoolingWork`."""

    def __init__(self, config: ServingConfig, connections: EngineConnections, drivers: Drivers) -> None:
        self._config = config
        self._connections = connections
        self._driver = drivers

    async def generate(self, attempt: Attempt, lease: Lease) -> bytes:
        """Send the work and return the client's whole response.

        If the client leaves, the engine's connection is closed, which stops the engine. The client is not billed,
        because it has received nothing. Raises SlipstreamError.
        """
        config, engine, work = self._config, lease.engine, attempt.prepared.details
        assert isinstance(work, EmbeddingWork | ScoringWork)
        driver = self._driver(engine)
        attempt.begin(salted_cache=driver.capabilities.salted_cache, read_error=driver.error)
        opening = self._connections.opening(
            engine.url,
            driver.pooled(work, attempt.generation, engine.model),
            config.connect_timeout_s,
            attempt.engine_request_id,
            engine.pool,
            attempt.trace_headers,
        )
        try:
            stream = await opening.response(config.first_event_timeout_s)
            attempt.sent = True
            if stream.status != 200:
                attempt.rejected = True
                raise await refusal(driver, stream)
            await self._read(stream, attempt, engine.url)
            closing = attempt.transcoder.finish()
            tracker = attempt.tracker
            usage = tracker.total or Usage(attempt.prepared.prompt_tokens)
            if tracker.final:
                attempt.finished(usage)
            else:
                attempt.counted(usage, Finish.COMPLETE, by_us=True)
            return closing
        except asyncio.CancelledError:
            attempt.finish = Finish.CLIENT_GONE
            raise
        finally:
            opening.close()
            attempt.sent = opening.sent
            if not attempt.ended:
                client_left = attempt.finish is Finish.CLIENT_GONE
                attempt.counted(Usage(), Finish.CLIENT_GONE if client_left else Finish.ENGINE_ERROR)
            attempt.generated()

    async def _read(self, stream: EngineStream, attempt: Attempt, url: str) -> None:
        """Read the engine's whole body. Raises EngineFailed, and EngineTimeout if the engine falls silent."""
        timeout_s = self._config.event_timeout_s
        while True:
            try:
                async with asyncio.timeout(timeout_s):
                    data = await stream.read()
            except TimeoutError:
                raise silent(Origin.parse(url), timeout_s) from None
            if not data:
                return
            attempt.transcoder.feed(data)
