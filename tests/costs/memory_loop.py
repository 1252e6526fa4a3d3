"""An event loop without a network and without time: connections are in memory, and no timer ever fires.

Each chunk that a peer sends arrives once nothing else can run, as on an idle machine, so a busy machine gives the same
counts. Peers belong to the test; the meter is paused while they run.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable
from typing import Any

from tests.costs.meter import Meter

NOW_S = 1_000.0
"""The loop's constant time."""


class Peer:
    """The other end of connections to an address."""

    name: str

    def received(self, data: bytes, wire: Wire) -> None:
        """Take bytes that the product wrote; respond with `wire.send`."""
        raise NotImplementedError


class Wire(asyncio.Transport):
    """The product's end of a connection."""

    def __init__(self, loop: MemoryLoop, protocol: Any, peer: Peer) -> None:
        super().__init__()
        self._loop_in_memory = loop
        self._protocol = protocol
        self._peer = peer
        self._reads, self._writes = f"reads from {peer.name}", f"writes to {peer.name}"
        self._closing = False

    def send(self, data: bytes) -> None:
        """Deliver bytes from the peer to the product."""
        self._loop_in_memory.arrivals.append((self._protocol.data_received, data, self._reads))

    def write(self, data: Any) -> None:
        meter = self._loop_in_memory.meter
        meter.transferred(self._writes)
        meter.pause()
        self._peer.received(bytes(data), self)
        meter.resume()

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return ("192.0.2.1", 40_000) if name in ("peername", "sockname") else default

    def set_protocol(self, protocol: Any) -> None:
        self._protocol = protocol

    def get_protocol(self) -> Any:
        return self._protocol

    def get_write_buffer_size(self) -> int:
        return 0

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass

    def is_closing(self) -> bool:
        return self._closing

    def is_reading(self) -> bool:
        return True

    def pause_reading(self) -> None:
        pass

    def resume_reading(self) -> None:
        pass

    def close(self) -> None:
        if not self._closing:
            self._closing = True
            self._loop_in_memory.call_soon(self._protocol.connection_lost, None)

    def abort(self) -> None:
        self.close()


class MemoryLoop(asyncio.SelectorEventLoop):
    """A loop whose connections lead to `peers`, named by host or by the path of a Unix socket."""

    def __init__(self, meter: Meter) -> None:
        super().__init__()
        self.meter = meter
        self.peers: dict[str, Peer] = {}
        self.arrivals: deque[tuple[Callable[[bytes], object], bytes, str]] = deque()
        self._idle: list[asyncio.Future[None]] = []
        self._thread = threading.get_ident()
        loop: Any = self  # asyncio's own attributes, which its types do not show
        loop._selector = _Selector(loop._selector)

    def time(self) -> float:
        return NOW_S

    def connected(self, factory: Callable[[], Any], peer: Peer) -> tuple[Wire, Any]:
        """A connection whose product's end is made by `factory`."""
        protocol = factory()
        wire = Wire(self, protocol, peer)
        protocol.connection_made(wire)
        return wire, protocol

    async def create_connection(self, protocol_factory: Any, host: Any = None, port: Any = None, **_: Any) -> Any:
        return self.connected(protocol_factory, self.peers[str(host)])

    async def create_unix_connection(self, protocol_factory: Any, path: Any = None, **_: Any) -> Any:
        return self.connected(protocol_factory, self.peers[str(path)])

    def call_soon_threadsafe(  # type: ignore[override]
        self, callback: Any, *arguments: Any, context: Any = None
    ) -> asyncio.Handle:
        if threading.get_ident() == self._thread:  # the loop is awake
            return self.call_soon(callback, *arguments, context=context)
        return super().call_soon_threadsafe(callback, *arguments, context=context)

    async def idle(self) -> None:
        """Return once there is nothing left to run or to deliver."""
        self.meter.pause()
        waiting = self.create_future()
        self._idle.append(waiting)
        self.meter.resume()
        await waiting

    def _run_once(self) -> None:
        loop: Any = self
        if not loop._ready and not self.arrivals and self._idle:
            self._idle.pop().set_result(None)  # a turn of the harness, which is not counted
        else:
            if not loop._ready and self.arrivals:
                receive, data, read = self.arrivals.popleft()
                self.meter.transferred(read)
                self.call_soon(receive, data)
            self.meter.transferred("turns of the loop")
        super()._run_once()  # type: ignore[misc]


class _Selector:
    """Polls the loop's only real file, its own pipe, only when there is nothing else to do."""

    def __init__(self, selector: Any) -> None:
        self._selector = selector

    def __getattr__(self, name: str) -> Any:
        return getattr(self._selector, name)

    def select(self, timeout: float | None = None) -> Any:
        return () if timeout == 0 else self._selector.select(timeout)
