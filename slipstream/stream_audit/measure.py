"""One audit: the connection, a silence if requested, streams of one event, and streams at two paces."""

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
    """The streams of an audit, with one request each, unless a stream must be repeated."""

    short_requests: int = 4
    slow_events: int = 24
    slow_interval_ms: int = 80
    """Longer than the delay of an acknowledgement: Nagle's algorithm does not hold these back."""
    fast_events: int = 100
    """More than sixteen: Linux delays no acknowledgement of a connection's first sixteen packets."""
    fast_interval_ms: int = 10
    idle_s: float = 0.0
    """Seconds of silence; 0 for none."""
    tries: int = 3
    """Tries for a stream if this machine is too busy to time it."""
    timeout_s: float = 10.0
    """Timeout of a connection attempt."""


async def measure(url: str, key: str, plan: Plan, ca_file: str | None = None) -> Measured:
    """Measure the path to a gateway. url: the gateway's or its proxy's, with or without `/v1`. ca_file: the user's own
    authority. Raises ConfigError for an invalid URL or file, and NotMeasured.
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
    # A separate context: the one above has offered HTTP/2, which this client does not support.
    async with AuditClient(str(base).rstrip("/"), key, name, _context(ca_file) if secure else None) as client:
        # First, so that a gateway that does not allow such a silence refuses before the other streams run.
        idle = await client.stream(IDLE_EVENTS, round(plan.idle_s * 1e3)) if plan.idle_s else None
        short = [await client.stream(1, plan.slow_interval_ms) for _ in range(plan.short_requests)]
        slow = await _undisturbed(client, plan.slow_events, plan.slow_interval_ms, plan.tries)
        fast = await _undisturbed(client, plan.fast_events, plan.fast_interval_ms, plan.tries)
    return msgspec.structs.replace(measured, short=tuple(short), slow=slow, fast=fast, idle=idle)


def origin_of(url: str) -> URL:
    """Scheme, host and port. Raises ConfigError."""
    try:
        parsed = URL(url)
    except ValueError as error:
        raise ConfigError(f"{url!r} is not a URL ({error}); write http://HOST:PORT") from None
    if parsed.scheme not in ("http", "https") or not parsed.host:
        raise ConfigError(f"{url!r}: give a URL such as https://models.example.com")
    if parsed.path.rstrip("/") not in ("", "/v1"):
        raise ConfigError(f"{url!r}: give the gateway's address only, without {parsed.path}")
    return parsed.origin()


async def _undisturbed(client: AuditClient, events: int, interval_ms: int, tries: int) -> Stream:
    """The stream, repeated while this machine is too busy to judge it; after the last try, the last stream."""
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
