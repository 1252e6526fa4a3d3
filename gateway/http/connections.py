"""Every open connection of one gateway: how many there are, from where, and what each waits for, with a deadline.

A connection waits for at most one thing of its client at a time. All waits for the same thing last equally long, so
that the order in which they began is the order in which they end: a sweep looks at the first of each kind only, and
the oldest connection that may give way to a new one is found at once. Decides; `gateway.http.client_protocol` acts.
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
"""Strangers may send as many malformed requests as they like, and must not fill the disk by the log."""
RETRY_AFTER_S = 1.0

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


OWED = frozenset({Waiting.HEAD, Waiting.BODY, Waiting.UNREAD, Waiting.READING})
"""What a client begins or takes and then does not go on with, in a round trip or two."""
LATE_S = 1.0
"""Who owes something for longer gives way first: connections that only wait must not push out those of clients that
come back."""
FEW = 8
"""Connections of one network. While one has more that may give way, those of smaller networks stay."""
ORGANIZATION_SHARE = 0.1
"""Of all connections, which one organization may keep before anything is reserved for its requests."""
MOST_LINGERING = 32
"""Connections that are turned away and still read their refusal, beside those that are held."""
LINGERING_S = 1.0


class Held(Protocol):
    """A connection, as the table sees it."""

    network: str
    """Where it comes from, as `ConnectionTable.network_of` says."""
    waiting: Waiting | None
    """What for, as told by `wait`; kept by the table."""
    kept_for: str | None
    """The organization that is served on it: while there is one, it gives way to nobody. Empty: nothing of the
    organization's share is taken for it. Kept by the table."""

    def overdue(self, waiting: Waiting) -> None:
        """Its time for that is over: it must end."""
        ...

    def give_way(self, refusal: SlipstreamError) -> None:
        """A new one takes its place: it must end at once, with this where an answer is due."""
        ...

    def cut(self) -> None:
        """It must be gone at once."""
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
        self._giving_way: dict[Waiting | None, dict[Held, float]] = {waiting: {} for waiting in (*Waiting, None)}
        """Since when those wait of whom nobody is known."""
        self._kept: dict[Waiting | None, dict[Held, float]] = {waiting: {} for waiting in (*Waiting, None)}
        """The same of all others."""
        self._giving_way_by_network: dict[str, int] = {}
        self._unreserved: dict[str, int] = {}
        """How many are kept for each organization before anything is reserved."""
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
        """Since the log was told last."""
        self._malformed_logged_s = -math.inf
        self.task = BackgroundTask.every(SWEEP_S, self.sweep, "connections")

    def __len__(self) -> int:
        return len(self._held)

    @property
    def heads(self) -> int:
        """Connections whose client has yet to say what it wants, TLS included."""
        return len(self._giving_way[Waiting.HEAD])

    def network_of(self, host: str) -> str:
        """What one client's connections have in common; empty for a proxy that is trusted, which has many clients."""
        return "" if is_among(host, self._trusted) else network_of(host)

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
        """From now on the connection waits for this; None: for us. To be told of changes only."""
        since_s = self._giving_way if connection.kept_for is None else self._kept
        since_s[connection.waiting].pop(connection, None)
        if connection not in self._held:
            return
        connection.waiting = waiting
        since_s[waiting][connection] = self._clock()

    def keep(self, connection: Held, organization_id: str) -> None:
        """The organization's key is good: its request is served on this connection, which gives way to nobody while the
        organization has no more of them than its share. organization_id: empty for a request that needs none of it."""
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
        """The request is within the limits of its organization, which no longer needs its share for it."""
        if connection.kept_for is None:
            self.keep(connection, "")
        elif connection.kept_for:
            self._unreserved[connection.kept_for] -= 1
            connection.kept_for = ""

    def answered(self, connection: Held) -> None:
        """Nobody is served on it any more."""
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
        """The connection is gone. Idempotent."""
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
        """The connection is none of those held, and its client may read a refusal."""
        self._lingering[connection] = self._clock()
        if len(self._lingering) > MOST_LINGERING:
            oldest = next(iter(self._lingering))
            del self._lingering[oldest]
            oldest.cut()

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
        for waiting, timeout_s in self._timeout_s.items():
            for since_s in (self._giving_way[waiting], self._kept[waiting]):
                for connection in _begun_before(now_s - timeout_s, since_s):
                    self._metrics.connection_ended(f"{waiting.value}_timeout")
                    self.wait(connection, None)
                    connection.overdue(waiting)
        for connection in _begun_before(now_s - LINGERING_S, self._lingering):
            del self._lingering[connection]
            connection.cut()
        self._unreserved = {organization_id: count for organization_id, count in self._unreserved.items() if count}
        self._metrics.connections_held(len(self._held))

    def _next_to_go(self) -> Held | None:
        """Who gives way of all: of the network that has most, where one has more than a few, else the oldest."""
        crowd, count = max(self._giving_way_by_network.items(), key=itemgetter(1), default=("", 0))
        if count > FEW:
            return self._oldest_of(self._by_network[crowd])
        return self._oldest_of(next(iter(since_s)) for since_s in self._giving_way.values() if since_s)

    def _oldest_of(self, connections: Iterable[Held]) -> Held | None:
        """Who gives way among these few hundred: who owes something and is late, then who has waited longest."""
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
    """The first of them; they are in order."""
    return list(itertools.takewhile(lambda connection: since_s[connection] <= moment_s, since_s))


def _exhausted() -> ConnectionsExhausted:
    return ConnectionsExhausted(
        "This instance serves as many connections as it may; try again shortly.", retry_after_s=RETRY_AFTER_S
    )
