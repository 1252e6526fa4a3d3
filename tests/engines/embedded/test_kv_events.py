"""KV events as a subscriber sees them: replaying them gives the set of cached prefixes."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
import zmq

from contracts.errors import ConfigError
from engines.embedded.config import EngineConfig, KVConfig, KVEventsConfig
from engines.embedded.engine import Engine
from engines.embedded.kv.namespace import Namespace
from engines.embedded.kv.publisher import END_OF_REPLAY, EventPublisher
from engines.embedded.kv.store import KVStore
from engines.embedded.models.registry import load_model
from engines.tokenizer.tokenizer import Tokenizer
from tests.engines.embedded.tiny import finish, request
from tests.waiting import eventually_blocking

ANYWHERE = KVEventsConfig(endpoint="tcp://127.0.0.1:*", replay_endpoint="tcp://127.0.0.1:*", topic="kv")


class Event(msgspec.Struct, tag=True, forbid_unknown_fields=True):
    """SGLang 0.5.23 reads tagged maps with these fields, and leaves out what is not set."""


class BlockStored(Event):
    block_hashes: list[int]
    parent_block_hash: int | None
    token_ids: list[int]
    block_size: int
    lora_id: int | None
    medium: str | None = None
    cache_salt: str | None = None
    lora_name: str | None = None


class BlockRemoved(Event):
    block_hashes: list[int]
    medium: str | None = None


class AllBlocksCleared(Event):
    pass


class Subscriber:
    """A router's picture of one engine: block hash to the tokens of the whole prefix."""

    def __init__(self, publisher: EventPublisher) -> None:
        self.context = zmq.Context()
        self.live = self.context.socket(zmq.SUB)
        self.live.subscribe(b"kv")
        self.live.rcvtimeo = 30_000
        self.live.connect(publisher.endpoint)
        self.replay = self.context.socket(zmq.DEALER)
        self.replay.rcvtimeo = 30_000
        self.replay.connect(publisher.replay_endpoint)
        self.prefixes: dict[int, tuple[str, tuple[int, ...]]] = {}
        self.applied = 0
        self.cleared = 0

    def ask(self, first: int) -> list[tuple[int, Any]]:
        """Everything kept from a number on."""
        self.replay.send_multipart((b"", first.to_bytes(8, "big")))
        found: list[tuple[int, Any]] = []
        while True:
            _, number, payload = self.replay.recv_multipart()
            if number == END_OF_REPLAY:
                return found
            found.append((int.from_bytes(number, "big"), msgspec.msgpack.decode(payload)))

    def apply(self, payload: Any) -> None:
        _, events, rank = payload
        assert rank == 0
        for event in msgspec.convert(events, list[BlockStored | BlockRemoved | AllBlocksCleared], strict=True):
            if isinstance(event, AllBlocksCleared):
                self.prefixes.clear()
                self.cleared += 1
                continue
            hashes = event.block_hashes
            if isinstance(event, BlockRemoved):
                for hash_ in hashes:
                    del self.prefixes[hash_]
                continue
            parent, ids, block = event.parent_block_hash, event.token_ids, event.block_size
            assert (event.lora_id, event.medium) == (None, "GPU")
            assert len(ids) == block * len(hashes)
            salt = event.cache_salt or ""
            before = ("", ()) if parent is None else self.prefixes[parent]
            assert parent is None or before[0] == salt
            for at, hash_ in enumerate(hashes):
                assert hash_ not in self.prefixes
                self.prefixes[hash_] = (salt, (*before[1], *ids[: block * (at + 1)]))


@pytest.fixture
def publisher() -> Iterator[EventPublisher]:
    made = EventPublisher(ANYWHERE, 4)
    yield made
    made.close()


@pytest.fixture
def subscriber(publisher: EventPublisher) -> Iterator[Subscriber]:
    made = Subscriber(publisher)
    yield made
    made.context.destroy(linger=0)


@pytest.fixture
def engine(tiny_model: Path, publisher: EventPublisher) -> Engine:
    """48 pages of 4 tokens."""
    model = load_model(tiny_model, "float32")
    kv = KVConfig(budget_bytes=48 * 4 * model.config.kv_elements_per_token * 4, page_tokens=4)
    config = EngineConfig(model=str(tiny_model), kv=kv)
    store = KVStore(model.config, kv, model.dtype, 100)
    return Engine(model, store, config, Tokenizer.load(tiny_model).text_stream, events=publisher)


def cached(engine: Engine) -> set[tuple[Namespace, tuple[int, ...]]]:
    """Every prefix of whole pages in the tree, read from its nodes."""
    found = set()
    for node in engine.cache._nodes:
        tokens: tuple[int, ...] = ()
        at = node
        while at is not None and at.page >= 0:
            tokens = at.digit + tokens
            at = at.parent
        if node is not None and len(node.digit) == engine.store.page_tokens:
            found.add((node.namespace, tokens))
    return found


def follow(subscriber: Subscriber) -> dict[Any, Any]:
    """Apply what the subscriber has not seen; its picture then."""
    for number, payload in subscriber.ask(subscriber.applied):
        assert number == subscriber.applied
        subscriber.apply(payload)
        subscriber.applied += 1
    return subscriber.prefixes


def test_a_subscriber_that_follows_knows_every_cached_prefix(engine: Engine, subscriber: Subscriber) -> None:
    source = random.Random(1)
    stems = [[source.randrange(5, 2048) for _ in range(30)] for _ in range(3)]
    for at in range(40):
        prompt = [*source.choice(stems)[: source.randrange(1, 30)], *range(5, 5 + source.randrange(1, 9))]
        salt = source.choice(("", "a"))
        finish(engine, request(f"r{at}", prompt, max_tokens=source.randrange(1, 9), cache_salt=salt, choices=2))
    assert engine.cache.evicted_pages > 0
    # the publisher's thread answers a replay also while the last events are on their way to it
    eventually_blocking(lambda: set(follow(subscriber).values()) == cached(engine))


def test_live_messages_carry_topic_and_number_and_continue_the_replay(engine: Engine, subscriber: Subscriber) -> None:
    finish(engine, request("before", range(5, 25), max_tokens=1))
    # a SUB joins some time after it connects: publish until it hears something, then fill the gap
    at = 0
    while not subscriber.live.poll(20):
        at += 1
        finish(engine, request(f"r{at}", [at + 5, *range(5, 25)], max_tokens=1))
        assert at < 500
    topic, number, payload = subscriber.live.recv_multipart()
    assert topic == b"kv"
    first = int.from_bytes(number, "big")
    assert subscriber.ask(first)[0] == (first, msgspec.msgpack.decode(payload))


def test_other_salts_have_other_hashes(engine: Engine, subscriber: Subscriber) -> None:
    for salt in ("", "a", "b"):
        finish(engine, request(f"r{salt}", range(5, 25), max_tokens=1, cache_salt=salt))
    eventually_blocking(lambda: len(follow(subscriber)) == 3 * 5)


def test_a_flush_forgets_everything_in_one_event(engine: Engine, subscriber: Subscriber) -> None:
    finish(engine, request("before", range(5, 45), max_tokens=2))
    eventually_blocking(lambda: len(follow(subscriber)) == 10)
    engine.submit(request("running", range(5, 45), max_tokens=2))
    assert not engine.flush_cache()
    while engine.busy:
        engine.step()
    assert engine.flush_cache()
    eventually_blocking(lambda: follow(subscriber) == {} and subscriber.cleared == 1)
    assert engine.pages.free == engine.pages.total
    (deltas,) = finish(engine, request("after", range(5, 45), max_tokens=2)).values()
    assert deltas[-1].cached_tokens == 0
    eventually_blocking(lambda: len(follow(subscriber)) == 10)


def test_a_step_that_changes_nothing_publishes_nothing(engine: Engine, subscriber: Subscriber) -> None:
    engine.submit(request("r", range(5, 25), max_tokens=10))
    engine.step()
    eventually_blocking(lambda: bool(subscriber.ask(0)))
    count = len(subscriber.ask(0))
    engine.step()
    assert len(subscriber.ask(0)) == count


def test_nonsense_on_the_replay_socket_is_ignored(subscriber: Subscriber) -> None:
    subscriber.replay.send(b"hello")
    subscriber.replay.send_multipart((b"", b"short"))
    assert subscriber.ask(0) == []


def test_an_endpoint_that_cannot_be_bound_stops_the_start(publisher: EventPublisher) -> None:
    with pytest.raises(ConfigError, match=r"kv_events\.endpoint: cannot bind"):
        EventPublisher(KVEventsConfig(endpoint=publisher.endpoint), 4)
    with pytest.raises(ConfigError, match=r"kv_events\.replay_endpoint: cannot bind"):
        EventPublisher(KVEventsConfig(endpoint="tcp://127.0.0.1:*", replay_endpoint="nowhere"), 4)
