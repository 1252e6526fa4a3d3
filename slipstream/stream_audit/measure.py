"""One audit: the connection, a silence where one is asked for, streams of one event, streams at two paces."""

from __future__ import annotations

import asyncio
import secrets
import ssl

import msgspec
from yarl import URL

from contracts.errors import ConfigError
from slipstream.stream_audit.client import AuditClient
from slipstream.stream_audit.connect import connection_to
from slipstream.stream_audit.measured import Measured, Stream
from slipstream.stream_audit.pattern import enough
from slipstream.stream_audit.rules.idle_cut import EVENTS as IDLE_EVENTS
from slipstream.stream_audit.timing import timing_of


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """What is asked for; one request each, unless a stream has to be repeated."""

    short_requests: int = 4
    slow_events: int = 24
    slow_interval_ms: int = 80
    """Longer than an acknowledgement is delayed: Nagle's rule does not hold these back."""
    fast_events: int = 100
    """Linux delays no acknowledgement of a connection's first sixteen packets."""
    fast_interval_ms: int = 10
    idle_s: float = 0.0
    """A silence; 0: none."""
    tries: int = 3
    """Of a stream that this machine was too busy to see arrive."""
    timeout_s: float = 10.0
    """For connecting."""


async def measure(url: str, key: str, plan: Plan, ca_file: str | None = None) -> Measured:
    """url: of the gateway or what stands before it, with or without `/v1`. ca_file: an authority of one's own.

    Raises ConfigError for a url or a file that is none, NotMeasured.
    """
    base = origin_of(url)
    secure = base.scheme == "https"
    context = _context(ca_file) if secure else None
    assert base.host is not None
    assert base.port is not None
    connection = await asyncio.to_thread(connection_to, base.host, base.port, context, plan.timeout_s)
    name = f"audit-{secrets.token_hex(6)}"
    measured = Measured(url=str(base), client_request_id=name, connection=connection)
    if connection.tls is not None and connection.tls.untrusted:
        return measured  # an unknown server does not get the key
    # of its own: the one above has offered HTTP/2, which this client does not speak
    async with AuditClient(str(base).rstrip("/"), key, name, _context(ca_file) if secure else None) as client:
        # first: a gateway that allows no silence so long says so before anybody has waited
        idle = await client.stream(IDLE_EVENTS, round(plan.idle_s * 1e3)) if plan.idle_s else None
        short = [await client.stream(1, plan.slow_interval_ms) for _ in range(plan.short_requests)]
        slow = await _undisturbed(client, plan.slow_events, plan.slow_interval_ms, plan.tries)
        fast = await _undisturbed(client, plan.fast_events, plan.fast_interval_ms, plan.tries)
    return msgspec.structs.replace(measured, short=tuple(short), slow=slow, fast=fast, idle=idle)


def origin_of(url: str) -> URL:
    """Scheme, host and port. Raises ConfigError."""
    try:
        given = URL(url)
    except ValueError as error:
        raise ConfigError(f"{url!r} is not a URL ({error}); write http://HOST:PORT") from None
    if given.scheme not in ("http", "https") or not given.host:
        raise ConfigError(f"{url!r}: give a URL such as https://models.example.com")
    if given.path.rstrip("/") not in ("", "/v1"):
        raise ConfigError(f"{url!r}: give the gateway's address only, without {given.path}")
    return given.origin()


async def _undisturbed(client: AuditClient, events: int, interval_ms: int, tries: int) -> Stream:
    """The stream, asked for again while it says too little; the last one then."""
    for _ in range(tries - 1):
        stream = await client.stream(events, interval_ms)
        if not stream.complete or not enough(timing_of(stream), interval_ms):
            return stream
    return await client.stream(events, interval_ms)


def _context(ca_file: str | None) -> ssl.SSLContext:
    try:
        return ssl.create_default_context(cafile=ca_file)
    except OSError as error:
        raise ConfigError(f"--ca-file {ca_file}: {error}") from None
