"""Supersedes keystrokes in flight at other gateways, through Valkey.

Each lineage has one record there, for as long as a request may take: its newest request, the gateway that serves it,
and the length and digest of its prefix, but no text. A gateway that replaces a record reads the old one, and notifies
the gateway that it names, which decides by the text. Without Valkey, each gateway knows only its own keystrokes.
Nothing waits: a late notification, or two in the wrong order, only lets an older request run to its end.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Callable
from functools import partial

import hiredis
import msgspec

from contracts.background_task import BackgroundTask
from contracts.dated_request_id import arrived_at_s
from gateway.supersession.in_flight_request import InFlightRequest
from gateway.supersession.lineage import Digests, Keystroke, few_typed
from storage.valkey import ConnectionLost, Done, Valkey, ignored
from storage.valkey_command import pack

RECORD_MS = 30_000
LISTEN_S = 10.0
"""Interval of the connection's checks, because the other gateways may be silent for long."""

logger = logging.getLogger(__name__)


class Record(msgspec.Struct, frozen=True, array_like=True):
    """The newest request of a lineage."""

    gateway: str
    request_id: str
    length: int
    digest: bytes
    """Digest of the request's prefix."""


class Told(msgspec.Struct, frozen=True, array_like=True):
    """A notification between gateways; see `Supersession.told`."""

    lineage: bytes
    older_id: str
    newer_id: str
    newer_length: int
    common: bytes


OnTold = Callable[[bytes, str, str, int, bytes], None]
_encode = msgspec.msgpack.Encoder().encode
_record = msgspec.msgpack.Decoder(Record).decode
_told = msgspec.msgpack.Decoder(Told).decode


class OtherGateways:
    """Exchanges keystrokes with the other gateways. Start and stop it with the gateway; set `on_told` before."""

    def __init__(self, url: str, key_prefix: str, timeout_s: float, digests: Digests) -> None:
        """url, timeout_s: see `storage.valkey.Valkey`. key_prefix: of all keys in Valkey."""
        self._key_prefix = key_prefix
        self._digests = digests
        self._name = secrets.token_hex(8)
        """The gateway's name, new at every start: notifications for an earlier run are lost on purpose."""
        self._valkey = Valkey(url, timeout_s, channel=self._channel(self._name), on_message=self._take)
        self._task = BackgroundTask.every(LISTEN_S, self._look_after, "keystrokes elsewhere")
        self.on_told: OnTold | None = None

    async def start(self) -> None:
        """Connect in the background. The start succeeds without Valkey."""
        await self._valkey.start()
        self._task.start()

    async def stop(self) -> None:
        """Stop sending and receiving notifications."""
        await self._task.stop()
        await self._valkey.stop()

    async def wait_ready(self) -> None:
        """Return once both directions are connected."""
        await self._valkey.wait_ready()

    def announce(self, request: InFlightRequest, keystroke: Keystroke, lineage: bytes) -> None:
        """See `Elsewhere`. The newest record stays until it expires: its request may have ended, which its gateway
        knows."""
        if not self._valkey.connected:
            return
        length = len(keystroke.prefix)
        record = Record(self._name, request.request_id, length, self._digests.prefix(keystroke, length))
        name = f"{self._key_prefix}:keystroke:{lineage.hex()}"
        self._send(
            ("SET", name, _encode(record), "PX", RECORD_MS, "GET"), partial(self._held, record, keystroke, lineage)
        )

    def _held(self, newer: Record, keystroke: Keystroke, lineage: bytes, reply: object) -> None:
        """Handle the replaced record."""
        if not isinstance(reply, bytes):
            if isinstance(reply, hiredis.ReplyError):
                logger.debug("keystrokes elsewhere: %s", reply)
            return
        try:
            older = _record(reply)
        except msgspec.MsgspecError:
            return
        # a later request was only announced earlier
        if older.gateway == self._name or _arrived_s(older) > _arrived_s(newer):
            return
        common = self._digests.prefix(keystroke, older.length)
        if few_typed(older.length, newer.length) and (newer.length < older.length or common == older.digest):
            message = Told(lineage, older.request_id, newer.request_id, newer.length, common)
            self._send(("PUBLISH", self._channel(older.gateway), _encode(message)))

    def _send(self, words: tuple[str | int | bytes, ...], done: Done = ignored) -> None:
        try:
            self._valkey.send(pack(words), done)
        except ConnectionLost:
            return  # each gateway then knows only its own keystrokes

    def _channel(self, gateway: str) -> str:
        return f"{self._key_prefix}:keystrokes:{gateway}"

    def _look_after(self) -> None:
        """Send a ping: the missing reply reveals a connection that died silently."""
        self._send(("PING",))

    def _take(self, data: bytes) -> None:
        try:
            message = _told(data)
        except msgspec.MsgspecError:
            logger.debug("keystrokes at other gateways: a message cannot be read")
            return
        if self.on_told is not None:
            self.on_told(message.lineage, message.older_id, message.newer_id, message.newer_length, message.common)


def _arrived_s(record: Record) -> float:
    return arrived_at_s(record.request_id) or 0.0
