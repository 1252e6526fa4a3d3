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
    """Connections held open at once by one instance. At the limit a new one replaces one that serves no request with a
    good key or session: one of the network with most of them, else the one late or idle longest. One organization keeps
    at most a tenth for requests that its limits do not count yet. If all connections serve such requests, a new one
    gets 503, and over TLS is closed before its handshake. The number is lower where the limit of open files has no room
    for two descriptors each; the log reports it at the start."""
    max_connections_per_address: Annotated[int, Meta(ge=0, le=1_000_000)] = 256
    """The same for one client address, answered 429, over TLS closed; an IPv6 address is its /64 network, unless it
    stands for one of IPv4. 0: no such limit."""
    trusted_proxies: tuple[str, ...] = ()
    """Addresses and networks (`10.0.0.7`, `10.1.0.0/16`) whose connections carry many clients: the limit per address is
    not for them, and the proxy must have its own. Their X-Forwarded-For names the client for the pace outside inference
    and the sign-in page."""
    max_header_bytes: Fixed[Annotated[int, Meta(ge=1_024, le=1_048_576)]] = 65_536
    """Largest request head: its URL and headers, with 32 bytes more for each header, as HTTP/2 counts. Answered 431."""
    head_timeout_s: Fixed[Timeout] = 10.0
    """Longest time from a connection, or from a request's first byte on one that is kept alive, to the end of the
    request's head; TLS is part of it. Answered 408 when something had come."""
    body_timeout_s: Fixed[Timeout] = 60.0
    """Longest time for a request's body to arrive. Without a good key, as at the sign-in page, the limits are 5 s and
    4 kB. In this time, a client must also read some of an answer, a tenth of it on average; generations have
    `gateway.client_stall_timeout_s`."""
    idle_timeout_s: Timeout = 75.0
    """How long a connection is kept alive without a request."""
    unread_timeout_s: Fixed[Timeout] = 5.0
    """After an answer that needed no body, how long the rest of the body is read and thrown away. In this time, a
    client must also read some of an answer on a connection that is being closed, a tenth of it on average."""


class TlsConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """HTTPS on the public port, for deployments without a proxy that ends TLS. TLS 1.2 and 1.3."""

    certificate_file: str = ""
    """PEM file with the certificate and its chain. Empty: plain HTTP."""
    key_file: str = ""
    """PEM file with the certificate's private key, without a passphrase."""
    reload_interval_s: Annotated[float, Meta(ge=0.1, le=86_400)] = 10.0
    """How often the two files are looked at. New connections get what they hold then; files that cannot be used are
    logged, and the pair before stays in force."""
