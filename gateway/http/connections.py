"""Tracks every open connection of one gateway, with its network, its wait and the wait's deadline.

A connection waits for at most one action of its client at a time. All waits of a kind have the same timeout, so they
end in the order in which they began. A sweep looks only at the first of each kind, and the oldest connection that may
give way to a new one is found at once. The table decides; `gateway.http.client_protocol` acts.
"""

from __future__ import annotations

import enum
import itertools
import logging
import math
import time
from collections import defaultdict
from collections.abc import Callable, Iterable
from operator import itemgetter
from typing import Protocol

from contracts.background_task import BackgroundTask
from contracts.errors import ConnectionsExhausted, SlipstreamError, TooManyConnections
from gateway.http.config import ConnectionsConfig
from gateway.http.networks import is_among, network_of, trusted_networks
from gateway.observability.metrics import GatewayMetrics

SWEEP_S = 0.25
MALFORMED_LOGGED_EVERY_S = 60.0
"""Clients without a key may send any number of malformed requests, which must not fill the disk with log lines."""
RETRY_AFTER_S = 1.0

logger = logging.getLogger(__name__)


class Waiting(enum.Enum):
    """The action that a connection waits for: its client must …"""

    HEAD = "head"
    """Send the rest of a request's head. The wait for the first head begins with the connection."""
    BODY = "body"
    """Send the rest of a body that its request needs."""
    UNREAD = "unread"
    """Send the rest of a body whose request has been answered."""
    READING = "reading"
    """Read more of an answer that has no other timeout."""
    IDLE = "idle"
    """Send another request."""
    CLOSING = "closing"
    """Read the end of its last answer."""


OWED = frozenset({Waiting.HEAD, Waiting.BODY, Waiting.UNREAD, Waiting.READING})
"""Waits that a live client ends within a round trip or two."""
LATE_S = 1.0
"""After this time in such a wait, a connection gives way before idle connections of clients that may return."""
FEW = 8
"""Number of connections. While a network has more that may give way, smaller networks keep theirs."""
ORGANIZATION_SHARE = 0.1
"""Part of all connections that one organization may keep for requests without a reservation."""
MAX_LINGERING = 32
"""Refused connections, in addition to the held ones, whose clients may still read the refusal."""
LINGERING_S = 1.0


class Held(Protocol):
    """A connection, as the table sees it."""

    network: str
    """The result of `ConnectionTable.network_of`."""
    waiting: Waiting | None
    """The current wait; set by the table."""
    kept_for: str | None
    """The organization that it serves; empty if it uses no share. While set, no new connection replaces it. Set by the
    table."""

    def closes_later(self) -> bool:
        """Whether it stays open after its last answer, for the rest of a body."""
        ...

    def reads_on(self, waiting: Waiting) -> bool:
        """Whether this wait, whose time is over, begins again because the client keeps reading its answer."""
        ...

    def overdue(self, waiting: Waiting) -> None:
        """End the connection, whose wait has timed out."""
        ...

    def give_way(self, refusal: SlipstreamError) -> None:
        """End at once, because a new connection replaces this one, with `refusal` if an answer is due."""
        ...

    def cut(self) -> None:
        """Close at once."""
        ...


class ConnectionTable:
    """All connections of this process."""

    def __init__(
        self, config: ConnectionsConfig, metrics: GatewayMetrics, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """Raises ConfigError if a trusted proxy is not an address."""
        self.config = config
        self.draining = False
        """Whether connections end with their next response: the client's next request then goes to another instance."""
        self._metrics = metrics
        self._clock = clock
        self._trusted = trusted_networks(config.trusted_proxies)
        self._held: set[Held] = set()
        self._by_network: defaultdict[str, set[Held]] = defaultdict(set)
        self._giving_way: dict[Waiting | None, dict[Held, float]] = {waiting: {} for waiting in (*Waiting, None)}
        """Start of the wait of each connection that may give way."""
        self._kept: dict[Waiting | None, dict[Held, float]] = {waiting: {} for waiting in (*Waiting, None)}
        """Start of the wait of each connection that may not give way."""
        self._giving_way_by_network: dict[str, int] = {}
        self._unreserved: dict[str, int] = {}
        """Connections kept for each organization without a reservation."""
        self._share = max(1, int(config.max_connections * ORGANIZATION_SHARE))
        self._lingering: dict[Held, float] = {}
        self._timeout_s = {
            Waiting.HEAD: config.head_timeout_s,
            Waiting.BODY: config.body_timeout_s,
            Waiting.UNREAD: config.unread_timeout_s,
            Waiting.READING: config.body_timeout_s,
            Waiting.IDLE: config.idle_timeout_s,
            Waiting.CLOSING: config.unread_timeout_s,
        }
        self._malformed = 0
        """Malformed requests since the last log line."""
        self._malformed_logged_s = -math.inf
        self.task = BackgroundTask.every(SWEEP_S, self.sweep, "connections")

    def __len__(self) -> int:
        return len(self._held)

    @property
    def heads(self) -> int:
        """Number of connections whose client has not sent a complete head, TLS handshakes included."""
        return len(self._giving_way[Waiting.HEAD])

    def network_of(self, host: str) -> str:
        """A client's network; empty for a trusted proxy, which has many clients."""
        return "" if is_among(host, self._trusted) else network_of(host)

    def admit(self, connection: Held) -> SlipstreamError | None:
        """Add a new connection, which then waits for a head. Another may give way. Returns a refusal, or None."""
        config = self.config
        network, limit = connection.network, config.max_connections_per_address
        neighbours = self._by_network.get(network, ()) if network and limit else ()
        if len(neighbours) >= limit > 0 and not self._give_way(self._oldest_of(neighbours), "address_limit"):
            self._metrics.connection_ended("address_refused")
            return TooManyConnections(
                f"More than {limit} connections are open from this address; close some or reuse them.",
                retry_after_s=RETRY_AFTER_S,
            )
        if len(self._held) >= config.max_connections and not self._give_way(self._next_to_go(), "limit"):
            self._metrics.connection_ended("refused")
            return _exhausted()
        self._held.add(connection)
        if network:
            self._by_network[network].add(connection)
            self._giving_way_by_network[network] = self._giving_way_by_network.get(network, 0) + 1
        self.wait(connection, Waiting.HEAD)
        return None

    def wait(self, connection: Held, waiting: Waiting | None) -> None:
        """Set the connection's wait; None if it waits for the gateway. Call it only for changes."""
        since_s = self._giving_way if connection.kept_for is None else self._kept
        since_s[connection.waiting].pop(connection, None)
        if connection not in self._held:
            return
        connection.waiting = waiting
        since_s[waiting][connection] = self._clock()

    def keep(self, connection: Held, organization_id: str) -> None:
        """Let no new connection replace this one, which has a valid key, within the organization's share of such
        connections. organization_id: empty for a request that needs no share."""
        taken = self._unreserved.get(organization_id, 0)
        if connection.kept_for is None and connection in self._held and taken < self._share:
            if organization_id:
                self._unreserved[organization_id] = taken + 1
            connection.kept_for = organization_id
            waiting, network = connection.waiting, connection.network
            self._kept[waiting][connection] = self._giving_way[waiting].pop(connection)
            if network:
                self._giving_way_by_network[network] -= 1

    def reserved(self, connection: Held) -> None:
        """Free the connection's part of the organization's share, because the organization's limits count the
        request."""
        if connection.kept_for is None:
            self.keep(connection, "")
        elif connection.kept_for:
            self._unreserved[connection.kept_for] -= 1
            connection.kept_for = ""

    def answered(self, connection: Held) -> None:
        """Let new connections replace this one again, because its request is answered."""
        if connection.kept_for is None:
            return
        if connection.kept_for:
            self._unreserved[connection.kept_for] -= 1
        connection.kept_for = None
        waiting, network = connection.waiting, connection.network
        del self._kept[waiting][connection]
        self._giving_way[waiting][connection] = self._clock()
        if network:
            self._giving_way_by_network[network] += 1

    def forget(self, connection: Held) -> None:
        """Remove a closed connection. Idempotent."""
        self._lingering.pop(connection, None)
        if connection not in self._held:
            return
        self.answered(connection)
        del self._giving_way[connection.waiting][connection]
        self._held.discard(connection)
        network = connection.network
        if network:
            neighbours = self._by_network[network]
            neighbours.discard(connection)
            self._giving_way_by_network[network] -= 1
            if not neighbours:
                del self._by_network[network], self._giving_way_by_network[network]

    def linger(self, connection: Held) -> None:
        """Keep a refused connection open, outside the held ones, so that its client can read the refusal."""
        self._lingering[connection] = self._clock()
        if len(self._lingering) > MAX_LINGERING:
            oldest = next(iter(self._lingering))
            del self._lingering[oldest]
            oldest.cut()

    def malformed(self, code: str) -> None:
        """Count a request that was refused before it was read; a later sweep logs it."""
        self._metrics.request_malformed(code)
        self._malformed += 1

    def sweep(self) -> None:
        """End connections that have waited too long."""
        now_s = self._clock()
        if self._malformed and now_s - self._malformed_logged_s >= MALFORMED_LOGGED_EVERY_S:
            logger.warning("malformed HTTP requests refused since the last log line like this: %d", self._malformed)
            self._malformed, self._malformed_logged_s = 0, now_s
        for waiting, timeout_s in self._timeout_s.items():
            for since_s in (self._giving_way[waiting], self._kept[waiting]):
                for connection in _begun_before(now_s - timeout_s, since_s):
                    if connection.reads_on(waiting):
                        self.wait(connection, waiting)
                        continue
                    self._metrics.connection_ended(f"{waiting.value}_timeout")
                    self.wait(connection, None)
                    connection.overdue(waiting)
        for connection in _begun_before(now_s - LINGERING_S, self._lingering):
            del self._lingering[connection]
            connection.cut()
        self._unreserved = {organization_id: count for organization_id, count in self._unreserved.items() if count}
        self._metrics.connections_held(len(self._held))

    def _next_to_go(self) -> Held | None:
        """The connection that gives way: one of the largest network if that has more than `FEW`, else the oldest."""
        crowd, count = max(self._giving_way_by_network.items(), key=itemgetter(1), default=("", 0))
        if count > FEW:
            return self._oldest_of(self._by_network[crowd])
        return self._oldest_of(next(iter(since_s)) for since_s in self._giving_way.values() if since_s)

    def _oldest_of(self, connections: Iterable[Held]) -> Held | None:
        """The connection among these few hundred that gives way: a late one, else the one that has waited longest."""
        late_s = self._clock() - LATE_S

        def precedence(connection: Held) -> tuple[bool, float]:
            waiting = connection.waiting
            since_s = self._giving_way[waiting][connection]
            return waiting not in OWED or since_s > late_s, since_s

        return min((each for each in connections if each.kept_for is None), key=precedence, default=None)

    def _give_way(self, connection: Held | None, reason: str) -> bool:
        if connection is None:
            return False
        self._metrics.connection_ended(f"gave_way_{reason}")
        self.forget(connection)
        connection.give_way(_exhausted())
        return True


def _begun_before(moment_s: float, since_s: dict[Held, float]) -> list[Held]:
    """Connections whose wait began by `moment_s`; `since_s` is in order."""
    return list(itertools.takewhile(lambda connection: since_s[connection] <= moment_s, since_s))


def _exhausted() -> ConnectionsExhausted:
    return ConnectionsExhausted(
        "This instance has reached its limit of connections; try again shortly.", retry_after_s=RETRY_AFTER_S
    )
