"""Generates one attempt's response on an engine and forwards it to the client.

- `generate` loads the adapter, and opens and closes the engine's stream.
- `_forward` forwards the stream while the client waits for it.
- `_stop` stops the engine and reads its final count.
"""

from __future__ import annotations

import asyncio
import logging
import time

from contracts.errors import EngineFailed, ServiceError, forget_frames
from contracts.lease import Engine, Lease
from contracts.phases import Phase
from contracts.usage import Finish, Usage
from engines.drivers.base import Driver
from engines.drivers.error_bodies import TransferFailed
from engines.http.engine_connections import EngineConnections, Opening
from gateway.http.server_timing import server_timing
from gateway.serving.adapter_loader import AdapterLoader
from gateway.serving.attempt import Attempt
from gateway.serving.collaborators import Drivers, Router
from gateway.serving.config import ServingConfig
from gateway.serving.engine_refusal import refusal
from gateway.serving.fallback_usage import count
from gateway.serving.first_attempt import FirstAttempt
from gateway.serving.observers import Observers
from gateway.serving.prefill import PrefillRequest, bootstrap
from gateway.serving.recording import End, Recording
from gateway.serving.stream import StreamForwarder
from gateway.supersession.in_flight_request import SUPERSEDED, Superseded

logger = logging.getLogger(__name__)

ANSWERED_BY = b"x-slipstream-answered-by"
"""Header that names the answer's model, if a smaller model may have answered."""


class Generator:
    """Generates the attempts of customers' requests and of background work."""

    def __init__(
        self,
        config: ServingConfig,
        connections: EngineConnections,
        drivers: Drivers,
        adapters: AdapterLoader,
        router: Router,
        observers: Observers,
    ) -> None:
        """router: gets the time to each attempt's first token."""
        self._config = config
        self._connections = connections
        self._driver = drivers
        self._adapters = adapters
        self._router = router
        self._observers = observers

    async def generate(self, attempt: Attempt, lease: Lease) -> bytes:
        """Load the adapter if the engine lacks it, open the engine's stream, and forward it.

        Returns the bytes that end the response. Raises SlipstreamError.
        """
        config, engine = self._config, lease.engine
        driver = self._driver(engine)
        if lease.load_adapter:
            await self._adapters.require(attempt.prepared.generation.adapter, lease, driver)
            attempt.granted_s = attempt.request.clock.total_s  # the router must not count loading as the engine's time
        attempt.no_drafts = lease.no_drafts
        if attempt.prefill is not None:
            attempt.bootstrap = bootstrap(attempt.prefill)
        attempt.begin(salted_cache=driver.capabilities.salted_cache, read_error=driver.error)
        if (recording := attempt.request.recording) is not None:
            recording.begin_again()
        opening = self._connections.opening(
            engine.url,
            driver.generate(attempt.generation, engine.model),
            config.connect_timeout_s,
            attempt.engine_request_id,
            engine.pool,
            attempt.trace_headers,
        )
        try:
            if attempt.prefill is None:
                await self._forward(attempt, driver, opening)
            else:
                await self._forward_pair(attempt, attempt.prefill, driver, opening)
            if attempt.transcoder.satisfied:
                if recording is not None:
                    recording.close(End.SUPERSEDED if attempt.request.superseded_by else End.BY_RULE)
                await self._stop(attempt, driver, opening, engine, Finish.COMPLETE)
            elif not attempt.transcoder.complete:
                raise attempt.transcoder.error or EngineFailed("The engine ended its answer early.", retry_after_s=1)
            if not attempt.ended:
                await count(attempt, Finish.COMPLETE)
        except asyncio.CancelledError:
            attempt.finish = Finish.CLIENT_GONE
            if recording is not None and recording.readings and recording.end is None:
                await self._outlive(attempt, opening, recording)
            await self._stop(attempt, driver, opening, engine, Finish.CLIENT_GONE)
            raise
        finally:
            opening.close()
            attempt.sent = opening.sent
            if not attempt.ended:
                client_left = attempt.finish is Finish.CLIENT_GONE
                await count(attempt, Finish.CLIENT_GONE if client_left else Finish.ENGINE_ERROR)
            attempt.generated()
        closing = attempt.transcoder.finish()
        attempt.judged()
        attempt.request.characters = attempt.transcoder.characters
        return closing

    async def _forward_pair(self, attempt: Attempt, prefill: Engine, driver: Driver, opening: Opening) -> None:
        """Run `_forward` on the decode engine, while the prefill engine computes the prompt for it."""
        config, prefill_driver = self._config, self._driver(prefill)
        prefill_opening = self._connections.opening(
            prefill.url,
            prefill_driver.generate(attempt.generation, prefill.model),
            config.connect_timeout_s,
            attempt.engine_request_id,
            prefill.pool,
            attempt.trace_headers,
        )
        request = PrefillRequest(prefill_opening, prefill_driver, config.first_event_timeout_s)
        attempt.prefill_request = request
        try:
            async with request:
                await self._forward(attempt, driver, opening)
        except TransferFailed:
            attempt.prefill_failed = True
            raise
        finally:
            attempt.prefill_failed = attempt.prefill_failed or request.error is not None

    async def _forward(self, attempt: Attempt, driver: Driver, opening: Opening) -> None:
        """Forward the output while a client waits for it. Raises Superseded if the engine was not called yet."""
        config, transcoder = self._config, attempt.transcoder
        try:
            async with attempt.client.in_flight:
                stream = await opening.response(config.first_event_timeout_s)
                attempt.sent = True
                if stream.status != 200:
                    attempt.rejected = True
                    raise await refusal(driver, stream)
                await StreamForwarder(stream, attempt, config, self._first_event, self._first_text).run()
        except Superseded as newer:
            if not opening.sent:
                attempt.counted(Usage(), Finish.NOT_PLACED)
                raise
            attempt.sent = True
            transcoder.cut()
            request = attempt.request
            request.superseded_by = newer.by
            self._observers.superseded(request, "decode" if transcoder.text_seen else "prefill")

    def _first_event(self, attempt: Attempt) -> None:
        """Send the response's headers with the phases so far, unless they have been sent."""
        request, response, transcoder = attempt.request, attempt.client.response, attempt.transcoder
        if transcoder.error is not None and not transcoder.events:
            raise transcoder.error
        attempt.first_event_seen = True
        if attempt.prefill_request is not None:
            attempt.prefill_request.answered()
        request.clock.end(Phase.ENGINE)
        if request.target.model.cascade is not None:
            response.headers.append((ANSWERED_BY, attempt.opened.model.encode()))
        if request.generation.stream:
            if not isinstance(attempt, FirstAttempt):
                response.headers.append(server_timing(request.clock))
            response.start_stream()
            attempt.status = response.status

    def _first_text(self, attempt: Attempt) -> None:
        """Report the time to the first token to the router, and end the request's phase. The first event does not
        count, because many engines send it before they have read the prompt."""
        attempt.first_text()
        usage = attempt.tracker.total
        ttft_s = attempt.request.clock.age_s - attempt.granted_s
        self._router.first_token(attempt.engine_request_id, ttft_s, usage.cached_tokens if usage else 0)

    async def _outlive(self, attempt: Attempt, opening: Opening, recording: Recording) -> None:
        """Continue without the client while other requests read the generation. They have the same key, which pays."""
        loop, config = asyncio.get_running_loop(), self._config
        try:
            async with asyncio.timeout(config.first_event_timeout_s) as limit:
                recording.on_alone = lambda: None if limit.expired() else limit.reschedule(loop.time())
                stream = await opening.response(config.first_event_timeout_s)
                while stream.status == 200 and (data := await stream.read()):
                    attempt.size.add(len(data))
                    seen = attempt.transcoder.events
                    attempt.transcoder.feed(data)
                    recording.feed(data)
                    if recording.readings and attempt.transcoder.events != seen:
                        limit.reschedule(loop.time() + config.event_timeout_s)
        except (TimeoutError, ServiceError) as error:
            logger.debug("request %s abandoned: %s", attempt.request.request_id, error)
            forget_frames(error)
        finally:
            recording.on_alone = None
            recording.close(End.BROKEN)

    async def _stop(self, attempt: Attempt, driver: Driver, opening: Opening, engine: Engine, finish: Finish) -> None:
        """Stop the engine, because the client has left or needs no more, and read how much the engine had generated.

        An engine that stops by id still sends its final count on the open stream, and so does an engine that had
        finished. An engine that only stops when the connection closes leaves what has arrived, a lower bound unless its
        final count is there.
        """
        transcoder, tracker, timeout_s = attempt.transcoder, attempt.tracker, self._config.abort_drain_s
        abort = driver.abort(attempt.engine_request_id, attempt.request.generation.choices)
        attempt.rejected = attempt.rejected or opening.refused  # perhaps not read, because the client left just then
        if not opening.in_flight or attempt.rejected or attempt.prefill_failed:
            return  # without its prompt, the decode engine has nothing to count
        if abort is None and not transcoder.finished:
            self._read_arrived(attempt, opening, finish)
            return
        try:
            async with asyncio.timeout(timeout_s):
                if abort is not None and not transcoder.finished:
                    await self._connections.fetch(engine.url, abort, timeout_s, pool_name=engine.pool)
                # the engine drops an aborted request, and no client wants it to run again
                stream = await opening.response(timeout_s, send_again=False)
                attempt.rejected = stream.status != 200
                while data := await stream.read():
                    attempt.size.add(len(data))
                    transcoder.feed(data)
                if tracker.final and tracker.total is not None:
                    attempt.finished(tracker.total, finish)
                elif usage_request := driver.usage_by_id(attempt.engine_request_id):
                    status, body = await self._connections.fetch(
                        engine.url, usage_request, timeout_s, pool_name=engine.pool
                    )
                    if (usage := driver.parse_usage_by_id(status, body)) is not None:
                        attempt.finished(usage, finish)
            self._observe_abort(attempt, finish)
        except (TimeoutError, ServiceError) as error:
            request_id = attempt.request.request_id
            logger.warning("request %s: engine %s did not confirm the abort: %s", request_id, engine.url, error)
            forget_frames(error)

    def _read_arrived(self, attempt: Attempt, opening: Opening, finish: Finish) -> None:
        """Count the events that have arrived, which stay unread while a client reads nothing."""
        tracker = attempt.tracker
        try:
            data = opening.unread()
            attempt.size.add(len(data))
            attempt.transcoder.feed(data)
        except ServiceError as error:
            logger.debug("request %s: unread events: %s", attempt.request.request_id, error)
            forget_frames(error)
        if tracker.final and tracker.total is not None:
            attempt.finished(tracker.total, finish)

    def _observe_abort(self, attempt: Attempt, finish: Finish) -> None:
        """Record how long the engine ran after its client left or typed on. A stop rule does not count."""
        client, since_s = attempt.client, None
        if finish is Finish.CLIENT_GONE:
            cause, since_s = "client_gone", client.watch.since_s
        elif attempt.request.superseded_by is not None:
            cause, since_s = SUPERSEDED, client.in_flight.since_s
        if since_s is not None:
            after_s = time.perf_counter() - since_s
            self._observers.aborted(cause, after_s)
