"""Every open connection of one gateway: how many there are, from where, and what each waits for, with a deadline.

A connection waits for at most one thing of its client at a time. All waits for the same thing last equally long, so
that the order in which they began is the order in which they end: a sweep looks at the first of each kind only, and
the oldest connection that may give way to a new one is found at once. Decides; `gateway.http.client_protocol` acts.
"""

from __future__ import annotations

import enum
import ipaddress
import logging
import math
import time
from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import Protocol

from contracts.addresses import Address, carried, plain
from contracts.background_task import BackgroundTask
from contracts.errors import ConfigError, ConnectionsExhausted, SlipstreamError, TooManyConnections
from gateway.http.config import ConnectionsConfig
from gateway.observability.metrics import GatewayMetrics

SWEEP_S = 0.25
MALFORMED_LOGGED_EVERY_S = 60.0
"""Strangers may send as many malformed requests as they like, and must not fill the disk by the log."""
RETRY_AFTER_S = 1.0

Network = ipaddress.IPv4Network | ipaddress.IPv6Network

logger = logging.getLogger(__name__)


class Waiting(enum.Enum):
    """What a connection waits for its client to do."""

    HEAD = "head"
    """Send the rest of a request's head; the first one's begins with the connection."""
    BODY = "body"
    """Send the rest of a body that is wanted."""
    UNREAD = "unread"
    """Send the rest of a body that nobody wants, the answer is out."""
    READING = "reading"
    """Read more of an answer that nothing else watches over."""
    IDLE = "idle"
    """Ask something more."""
    CLOSING = "closing"
    """Read the end of its last answer."""


GIVES_WAY = (Waiting.UNREAD, Waiting.READING, Waiting.IDLE, Waiting.HEAD)
"""In this order, behind heads that are slow. Bodies are read for valid keys only, and the end of an answer is
owed to its reader."""
SLOW_HEAD_S = 1.0
"""A head takes a round trip or two. One that takes longer gives way first: connections that only wait must not push out
those of clients that come back."""


class Held(Protocol):
    """A connection, as the table sees it."""

    network: str
    """Where it comes from, as `network_of` says."""
    waiting: Waiting | None
    """What for, as told by `wait`; kept by the table."""

    def overdue(self, waiting: Waiting) -> None:
        """Its time for that is over: it must end."""
        ...

    def give_way(self) -> None:
        """A new one takes its place: it must be gone at once."""
        ...


class ConnectionTable:
    """All connections of this process."""

    def __init__(
        self, config: ConnectionsConfig, metrics: GatewayMetrics, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """Raises ConfigError when a trusted proxy is no address."""
        self.config = config
        self.draining = False
        """Each connection ends with its next answer: the client's next request is for another instance."""
        self._metrics = metrics
        self._clock = clock
        self._trusted = trusted_networks(config.trusted_proxies)
        self._held: set[Held] = set()
        self._by_network: defaultdict[str, set[Held]] = defaultdict(set)
        self._since_s: dict[Waiting, dict[Held, float]] = {waiting: {} for waiting in Waiting}
        self._timeout_s = {
            Waiting.HEAD: config.head_timeout_s,
            Waiting.BODY: config.body_timeout_s,
            Waiting.UNREAD: config.unread_timeout_s,
            Waiting.READING: config.body_timeout_s,
            Waiting.IDLE: config.idle_timeout_s,
            Waiting.CLOSING: config.unread_timeout_s,
        }
        self._malformed = 0
        """Since the log was told last."""
        self._malformed_logged_s = -math.inf
        self.task = BackgroundTask.every(SWEEP_S, self.sweep, "connections")

    def __len__(self) -> int:
        return len(self._held)

    @property
    def heads(self) -> int:
        """Connections whose client has yet to say what it wants, TLS included."""
        return len(self._since_s[Waiting.HEAD])

    def network_of(self, host: str) -> str:
        """What one client's connections have in common; empty for a proxy that is trusted, which has many clients."""
        address = _peer(host)
        if address is None or is_among(host, self._trusted):
            return ""
        address = carried(address) or address
        if isinstance(address, ipaddress.IPv6Address):
            return str(ipaddress.ip_network((address, 64), strict=False))
        return str(address)

    def admit(self, connection: Held) -> SlipstreamError | None:
        """Take a new connection in, which then waits for a head; or say why not. Another may have to give way."""
        config = self.config
        network, most = connection.network, config.max_connections_per_address
        neighbours = self._by_network.get(network, ()) if network and most else ()
        if len(neighbours) >= most > 0 and not self._give_way(self._oldest_of(neighbours), "address_limit"):
            self._metrics.connection_ended("address_refused")
            return TooManyConnections(
                f"More than {most} connections are open from this address; close some or reuse them.",
                retry_after_s=RETRY_AFTER_S,
            )
        if len(self._held) >= config.max_connections and not self._give_way(self._oldest(), "limit"):
            self._metrics.connection_ended("refused")
            return ConnectionsExhausted(
                "This instance serves as many connections as it may; try again shortly.", retry_after_s=RETRY_AFTER_S
            )
        self._held.add(connection)
        if network:
            self._by_network[network].add(connection)
        self.wait(connection, Waiting.HEAD)
        return None

    def wait(self, connection: Held, waiting: Waiting | None) -> None:
        """From now on the connection waits for this; None: for us. To be told of changes only."""
        if connection.waiting is not None:
            self._since_s[connection.waiting].pop(connection, None)
        if connection not in self._held:
            return
        connection.waiting = waiting
        if waiting is not None:
            self._since_s[waiting][connection] = self._clock()

    def forget(self, connection: Held) -> None:
        """The connection is gone. Idempotent."""
        self.wait(connection, None)
        self._held.discard(connection)
        neighbours = self._by_network.get(connection.network)
        if neighbours is not None:
            neighbours.discard(connection)
            if not neighbours:
                del self._by_network[connection.network]

    def malformed(self, code: str) -> None:
        """A request was refused before it was read; the log hears of it with a later sweep."""
        self._metrics.request_malformed(code)
        self._malformed += 1

    def sweep(self) -> None:
        """End whatever has waited for too long."""
        now_s = self._clock()
        if self._malformed and now_s - self._malformed_logged_s >= MALFORMED_LOGGED_EVERY_S:
            logger.warning("malformed HTTP requests refused since the last such line: %d", self._malformed)
            self._malformed, self._malformed_logged_s = 0, now_s
        for waiting, since_s in self._since_s.items():
            timeout_s = self._timeout_s[waiting]
            overdue = []
            for connection, began_s in since_s.items():
                if now_s - began_s < timeout_s:
                    break
                overdue.append(connection)
            for connection in overdue:
                self._metrics.connection_ended(f"{waiting.value}_timeout")
                self.wait(connection, None)
                connection.overdue(waiting)
        self._metrics.connections_held(len(self._held))

    def _oldest(self) -> Held | None:
        """Who gives way of all: the first of one of the kinds, for each is in order."""
        return self._oldest_of([next(iter(self._since_s[waiting])) for waiting in GIVES_WAY if self._since_s[waiting]])

    def _oldest_of(self, connections: Iterable[Held]) -> Held | None:
        """Who gives way among these few hundred."""
        now_s = self._clock()

        def precedence(connection: Held) -> tuple[int, float]:
            waiting = connection.waiting
            assert waiting is not None
            since_s = self._since_s[waiting][connection]
            slow = waiting is Waiting.HEAD and now_s - since_s >= SLOW_HEAD_S
            return -1 if slow else GIVES_WAY.index(waiting), since_s

        return min((each for each in connections if each.waiting in GIVES_WAY), key=precedence, default=None)

    def _give_way(self, connection: Held | None, reason: str) -> bool:
        if connection is None:
            return False
        self._metrics.connection_ended(f"gave_way_{reason}")
        self.forget(connection)
        connection.give_way()
        return True


def trusted_networks(entries: tuple[str, ...]) -> tuple[Network, ...]:
    """The setting's entries. Raises ConfigError."""
    networks = []
    for number, entry in enumerate(entries):
        try:
            networks.append(ipaddress.ip_network(entry))
        except ValueError as error:
            param = f"gateway.connections.trusted_proxies[{number}]"
            raise ConfigError(
                f"{param}: {error}; give an address or a network such as 10.1.0.0/16", param=param
            ) from None
    return tuple(networks)


def is_among(host: str, networks: tuple[Network, ...]) -> bool:
    """Whether a peer's address is in one of these networks."""
    address = _peer(host)
    return address is not None and any(address in network for network in networks)


def _peer(host: str) -> Address | None:
    """None for what is no address, as of a connection that is no socket."""
    try:
        return plain(ipaddress.ip_address(host.partition("%")[0]))
    except ValueError:
        return None
