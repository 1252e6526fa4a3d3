"""Has an engine generate one token for the router itself, because `/health` does not prove that generation works.

The core requests a probe if requests fail while polls are healthy, never routinely. The prompt is a single user message
or text "1", so that no tenant's input can decide the outcome.
"""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import Callable
from typing import Any

from contracts.errors import ConfigError, ConnectionsExhausted, EngineFailed, EngineTimeout, NoEngine, SlipstreamError
from contracts.generation import Caller, ChatPrompt, Generation, Sampling, TextPrompt, Tier
from engines.drivers.base import Driver
from engines.drivers.engine_json import decode_engine_json
from engines.drivers.error_bodies import error_body
from engines.http.event_splitter import EventSplitter
from router.core.decisions import ProbeGeneration
from router.core.events import GenerationProbed, Probe
from router.health import HTTP_OK, Fetch, Target

logger = logging.getLogger(__name__)

TIMEOUT_S = 30.0
"""A long time, because an engine may first compute other prompts of any length."""
LAST_EVENT = b"[DONE]"
UNREADABLE_EVENTS = "a generation's events cannot be read"
NOBODY = Caller("", "", "")


class GenerationProber:
    """Runs the probes. report: called with the outcome of every probe, on the event loop."""

    def __init__(
        self,
        connections: Fetch,
        driver_of: Callable[[str], Driver],
        report: Callable[[GenerationProbed], None],
        timeout_s: float = TIMEOUT_S,
    ) -> None:
        self._connections = connections
        self._driver_of = driver_of
        self._report = report
        self._timeout_s = timeout_s
        self._tasks: set[asyncio.Task[None]] = set()

    def probe(self, asked: ProbeGeneration, target: Target) -> None:
        """Start a probe, whose outcome is reported."""
        task = asyncio.create_task(self._probe(asked, target), name=f"probe a generation of {asked.replica_id}")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def stop(self) -> None:
        """Cancel the running probes."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _probe(self, decision: ProbeGeneration, target: Target) -> None:
        try:
            driver = self._driver_of(target.driver)
            request = driver.generate(_generation(decision), decision.model)
            status, body = await self._connections.fetch(target.url, request, self._timeout_s, pool_name=target.pool)
            probe, detail = outcome(status, body)
        except (ConnectionsExhausted, NoEngine, ConfigError) as error:  # this process lacks resources
            probe, detail = Probe.UNCLEAR, error.message
        except EngineTimeout as error:
            probe, detail = Probe.LATE, error.message
        except SlipstreamError as error:
            probe, detail = Probe.FAILED, error.message
        except Exception:
            logger.exception("probing a generation of %s failed", target.url)
            probe, detail = Probe.UNCLEAR, "the probe itself failed, see the log"
        logger.warning("generation probe of replica %s: %s", decision.replica_id, detail or probe.value)
        self._report(GenerationProbed(decision.replica_id, probe, detail))


def outcome(status: int, body: bytes) -> tuple[Probe, str]:
    """The verdict on an engine's whole response: a 5xx, an error in the stream and a truncated stream are failures,
    while a refusal (4xx, 503) decides nothing. Like in the gateway, [DONE] is not required."""
    if status != HTTP_OK:
        return _judged(status), f"generation probe answered with {status}"
    finished = False
    try:
        for payload in EventSplitter().feed(body):
            chunk = _object(payload)
            if chunk.get("error") or chunk.get("object") == "error":
                code = _status(error_body(payload).code)
                return _judged(code), f"a generation ended in an error, code {code}"
            finished = finished or _finishes(chunk)
    except (EngineFailed, AttributeError, TypeError):
        return Probe.FAILED, UNREADABLE_EVENTS
    return (Probe.WELL, "") if finished else (Probe.FAILED, "a generation ended in the middle of its stream")


def _judged(status: int) -> Probe:
    return Probe.FAILED if status >= 500 and status != 503 else Probe.UNCLEAR


def _object(payload: bytes) -> dict[str, Any]:
    """The object in an event; empty for [DONE]."""
    return {} if payload == LAST_EVENT else decode_engine_json(payload, dict[str, Any], UNREADABLE_EVENTS)


def _finishes(chunk: dict[str, Any]) -> bool:
    return any(choice.get("finish_reason") for choice in chunk.get("choices") or ())


def _status(code: str) -> int:
    """An error event's code as a status; 500 if it is not one."""
    return int(code) if code.isascii() and code.isdigit() and len(code) == 3 else 500


def _generation(decision: ProbeGeneration) -> Generation:
    prompt: ChatPrompt | TextPrompt = TextPrompt(("1",))
    if decision.tier is Tier.CHAT:
        prompt = ChatPrompt(({"role": "user", "content": "1"},))
    sampling = Sampling(max_tokens=1)
    return Generation(f"probe_{uuid.uuid4().hex}", NOBODY, decision.tier, decision.model, prompt, sampling)
