"""Settings of the public port's connections and of TLS on it."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from contracts.fixed import Fixed

Timeout = Annotated[float, Meta(ge=0.1, le=3_600)]


class ConnectionsConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Limits of clients' connections to one gateway instance, which apply before a client is authenticated."""

    max_connections: Annotated[int, Meta(ge=1, le=1_000_000)] = 4_096
    """Maximum number of open connections of one instance. At the limit, a new connection replaces one that serves no
    request with a valid key or session: one from the network that has most of them, otherwise the one that has been
    late or idle longest. One organization keeps at most a tenth of the connections for requests that its limits do not
    count yet. If every connection serves such a request, a new one gets 503 or, over TLS, is closed before its
    handshake. The number is lower if the limit of open files does not allow two descriptors for each connection; the
    log reports that at the start."""
    max_connections_per_address: Annotated[int, Meta(ge=0, le=1_000_000)] = 256
    """Maximum number of open connections of one client address. Beyond it, a new connection gets 429 or, over TLS, is
    closed. An IPv6 address counts as its /64 network, unless it represents an IPv4 address. 0: no limit."""
    trusted_proxies: tuple[str, ...] = ()
    """Addresses and networks (`10.0.0.7`, `10.1.0.0/16`) of proxies. The limit per address does not apply to them, so a
    proxy needs its own. Their X-Forwarded-For header identifies the client for the sign-in page and for the pacing of
    requests other than inference."""
    max_header_bytes: Fixed[Annotated[int, Meta(ge=1_024, le=1_048_576)]] = 65_536
    """Maximum size of a request head: its URL and headers, plus 32 bytes for each header, as HTTP/2 counts them. A
    larger one gets 431."""
    head_timeout_s: Fixed[Timeout] = 10.0
    """Longest time until the end of a request's head, from the start of the connection (including TLS) or, on a
    kept-alive connection, from the request's first byte. A client that has sent a part of the head gets 408."""
    body_timeout_s: Fixed[Timeout] = 60.0
    """Longest time for a request's body to arrive. Without a valid key, as at the sign-in page, the limits are 5 s and
    4 kB. In this time, a client must also read a tenth of its response on average. For generations,
    `gateway.client_stall_timeout_s` applies instead."""
    idle_timeout_s: Timeout = 75.0
    """How long a connection without a request stays open."""
    unread_timeout_s: Fixed[Timeout] = 5.0
    """How long the rest of a body is read and discarded after a response that did not need it. In this time, a client
    must also read a tenth of its response on average if the connection is being closed."""


class TlsConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """HTTPS on the public port, for deployments without a proxy that terminates TLS. TLS 1.2 and 1.3."""

    certificate_file: str = ""
    """PEM file with the certificate and its chain. Empty: plain HTTP."""
    key_file: str = ""
    """PEM file with the certificate's private key, without a passphrase."""
    reload_interval_s: Annotated[float, Meta(ge=0.1, le=86_400)] = 10.0
    """Interval at which the two files are checked. New connections use their current content. Files that cannot be used
    are logged, and the previous pair stays in use."""
