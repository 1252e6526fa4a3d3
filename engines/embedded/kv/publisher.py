"""Publishes the prefixes that this engine holds, as SGLang's KV events over ZeroMQ.

For each engine step that changed the cache, a PUB socket sends [topic, sequence number (8 bytes, big endian), msgpack].
The msgpack is `[time, events, rank]`, and each event is a map with its kind in `type`, like those of version 0.5.23
(older versions write arrays). PUB drops messages for a slow subscriber, so the newest are kept, and a ROUTER socket
answers `["", first requested number]` with them and then the number -1. A separate thread owns both sockets.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Sequence
from typing import Any

import msgspec
import xxhash
import zmq

from contracts.errors import ConfigError
from engines.embedded.config import KVEventsConfig
from engines.embedded.kv.events import BlockEvents
from engines.embedded.kv.namespace import AdaptedSalt, Namespace

END_OF_REPLAY = b"\xff" * 8
MEDIUM = "GPU"
"""SGLang's name for the fast memory, which is the only tier here."""


class EventPublisher(BlockEvents):
    """Collects a step's events in the engine's thread and publishes them together."""

    def __init__(self, config: KVEventsConfig, page_tokens: int) -> None:
        """Bind the sockets. Raises ConfigError that names an endpoint that cannot be bound."""
        self._config = config
        self._page_tokens = page_tokens
        self._hashes: dict[int, int] = {}
        """Block hashes of the cached pages, by page."""
        self._events: list[dict[str, Any]] = []
        self._context = zmq.Context()
        self._inlet = self._socket(zmq.PAIR, "inproc://batches", "")
        outlet = self._context.socket(zmq.PAIR)
        outlet.connect("inproc://batches")
        live = self._socket(zmq.PUB, config.endpoint, "endpoint")
        replay = self._socket(zmq.ROUTER, config.replay_endpoint, "replay_endpoint") if config.replay_endpoint else None
        self.endpoint = live.getsockopt_string(zmq.LAST_ENDPOINT)
        self.replay_endpoint = replay.getsockopt_string(zmq.LAST_ENDPOINT) if replay else ""
        self._thread = threading.Thread(target=self._run, args=(outlet, live, replay), name="kv-events", daemon=True)
        self._thread.start()

    def stored(
        self, pages: Sequence[int], tokens: Sequence[tuple[int, ...]], above: tuple[int | None, Namespace]
    ) -> None:
        parent_page, namespace = above
        adapted = namespace if isinstance(namespace, AdaptedSalt) else None
        salt = namespace.salt if isinstance(namespace, AdaptedSalt) else namespace
        parent = None if parent_page is None else self._hashes[parent_page]
        hashes: list[int] = []
        beginning = salt.encode() if adapted is None else msgspec.msgpack.encode(adapted)
        previous = _hash(0, beginning) if parent is None else parent
        for page, digit in zip(pages, tokens, strict=True):
            previous = self._hashes[page] = _hash(previous, b"".join(id_.to_bytes(4, "little") for id_ in digit))
            hashes.append(previous)
        ids = [id_ for digit in tokens for id_ in digit]
        event: dict[str, Any] = {
            "type": "BlockStored",
            "block_hashes": hashes,
            "parent_block_hash": parent,
            "token_ids": ids,
            "block_size": self._page_tokens,
            "lora_id": None,
            "medium": MEDIUM,
        }
        # SGLang also omits absent fields
        if salt:
            event["cache_salt"] = salt
        if adapted is not None:
            event["lora_name"] = adapted.adapter
        self._events.append(event)

    def removed(self, page: int) -> None:
        hash_ = self._hashes.pop(page)
        if self._events and self._events[-1]["type"] == "BlockRemoved":
            self._events[-1]["block_hashes"].append(hash_)
        else:
            self._events.append({"type": "BlockRemoved", "block_hashes": [hash_], "medium": MEDIUM})

    def cleared(self) -> None:
        """Replace the removals of all pages with one event."""
        self._hashes.clear()
        self._events = [{"type": "AllBlocksCleared"}]

    def flush(self) -> None:
        """Publish the changes since the last call, if there are any."""
        if self._events:
            self._inlet.send(msgspec.msgpack.encode([time.time(), self._events, 0]))
            self._events = []

    def close(self) -> None:
        """Publish the rest and close the sockets."""
        self.flush()
        self._inlet.send(b"")
        self._thread.join()
        self._inlet.close(linger=0)
        self._context.term()

    def description(self) -> dict[str, object]:
        return {
            "publisher": "zmq",
            "endpoint": self.endpoint,
            "replay_endpoint": self.replay_endpoint or None,
            "topic": self._config.topic,
            "block_size": self._page_tokens,
        }

    def _socket(self, kind: int, endpoint: str, name: str) -> zmq.Socket[bytes]:
        socket = self._context.socket(kind)
        socket.set_hwm(self._config.high_water_messages)
        try:
            socket.bind(endpoint)
        except zmq.ZMQError as error:
            self._context.destroy(linger=0)
            field = f"kv_events.{name}"
            raise ConfigError(f"{field}: cannot bind {endpoint!r}: {error}", param=field) from None
        return socket

    def _run(self, outlet: zmq.Socket[bytes], live: zmq.Socket[bytes], replay: zmq.Socket[bytes] | None) -> None:
        kept: deque[tuple[bytes, bytes]] = deque(maxlen=self._config.replay_messages)
        topic = self._config.topic.encode()
        poller = zmq.Poller()
        poller.register(outlet, zmq.POLLIN)
        if replay is not None:
            poller.register(replay, zmq.POLLIN)
        number = 0
        open_ = True
        while open_:
            ready = dict(poller.poll())
            if outlet in ready:
                payload = outlet.recv()
                open_ = payload != b""
                if open_:
                    kept.append((number.to_bytes(8, "big"), payload))
                    live.send_multipart((topic, *kept[-1]))
                    number += 1
            if replay is not None and replay in ready:
                _answer(replay, kept)
        for socket in (outlet, live, replay):
            if socket is not None:
                socket.close(linger=0)


def _answer(replay: zmq.Socket[bytes], kept: deque[tuple[bytes, bytes]]) -> None:
    """Answer one replay request. Ignore messages of another shape, because any client may connect."""
    frames = replay.recv_multipart()
    if len(frames) != 3 or len(frames[2]) != 8:
        return
    client, _, first = frames
    for number, payload in kept:
        if number >= first:  # big-endian numbers compare like their bytes
            replay.send_multipart((client, b"", number, payload))
    replay.send_multipart((client, b"", END_OF_REPLAY, b""))


def _hash(previous: int, data: bytes) -> int:
    """A block's hash of the preceding hash and its own content, in signed 64 bits like SGLang's."""
    digest = xxhash.xxh3_64_digest(previous.to_bytes(8, "big", signed=True) + data)
    return int.from_bytes(digest, "big", signed=True)
