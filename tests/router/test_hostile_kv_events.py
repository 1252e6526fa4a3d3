"""What a publisher of KV events can do to the router: nothing that its messages do not cost itself. Work is counted."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
from collections.abc import Callable, Iterator
from typing import Any
from unittest.mock import patch

import msgspec
import pytest
import xxhash
import zmq

from contracts.prefix import BLOCK_TOKENS, MAX_BLOCKS, chain_tokens, root
from router import kv_subscriber
from router.core import kv_mirror
from router.core.events import KvBatch
from router.core.kv_changes import BYTES_PER_STEP, FREE_STEPS, apply
from router.core.kv_mirror import EVERYTHING, PATIENCE_BYTES, PATIENCE_MESSAGES, UNREADABLE, KvMirror
from router.core.prefix_index import PrefixIndex
from router.kv_subscriber import MAX_MESSAGE_BYTES, KvSubscriptions
from tests.waiting import eventually

TOO_SMALL, TOO_LARGE = -1, 1 << 32
SEVERAL = 3_000
"""Events in a message that is meant to be dear."""


def message(at: float, *events: object) -> bytes:
    return msgspec.msgpack.encode([at, list(events), 0])


def stored(page: int, parent: int | None, token: int, pages: int = 1) -> list[object]:
    """A run of pages of one block each."""
    tokens = [token] * BLOCK_TOKENS * pages
    return ["BlockStored", list(range(page, page + pages)), parent, tokens, BLOCK_TOKENS, None, "GPU"]


class Followed:
    """A mirror and the index that it is brought into, as the dispatcher does it."""

    def __init__(self) -> None:
        self.mirror = KvMirror("m", replays=False)
        self.index = PrefixIndex(1_000_000)

    def take(self, payload: bytes) -> None:
        changes, _ = self.mirror.take(self.mirror.next_number, payload, repeated=False)
        apply(changes, self.index, 0, len(payload))

    def holds(self, tokens: list[int]) -> int:
        """Leading blocks of a prompt."""
        return self.index.overlap(self.index.match(chain_tokens(root("m"), tokens).hashes), 0)


# what cannot be read


@pytest.mark.parametrize(
    "bad",
    [
        ["BlockStored", [9], None, [TOO_SMALL] * BLOCK_TOKENS, BLOCK_TOKENS, None],
        ["BlockStored", [9], None, [TOO_LARGE] * BLOCK_TOKENS, BLOCK_TOKENS, None],
        ["BlockStored", [9], None, [1.5] * BLOCK_TOKENS, BLOCK_TOKENS, None],
        ["BlockStored", [9], None, [1], 0, None],
        ["BlockStored", [9], None, [1], "64", None],
        ["BlockStored", [[9]], None, [1], 1, None],
        ["BlockRemoved", 9],
        ["BlockRemoved", [1, [9]]],
        {"type": "BlockStored"},
        [],
        7,
    ],
)
def test_an_event_that_cannot_be_read_costs_no_other(bad: object) -> None:
    followed = Followed()
    followed.take(message(1.0, stored(1, None, 1), stored(2, None, 2)))
    followed.take(message(2.0, stored(3, None, 3), bad, ["BlockRemoved", [2]]))
    assert followed.mirror.next_number == 2
    assert [followed.holds([token] * BLOCK_TOKENS) for token in (2, 3)] == [0, 1]
    assert followed.holds([1] * BLOCK_TOKENS) == (0 if bad == ["BlockRemoved", [1, [9]]] else 1), "what was told counts"


@pytest.mark.parametrize("payload", [message(1.0)[:-2], b"\x93\xa1x\x90\x00", b"\x93\xcb" + b"\0" * 8 + b"\x01\x00"])
def test_what_is_no_message_is_none(payload: bytes) -> None:
    mirror = KvMirror("m")
    with pytest.raises(UNREADABLE):
        mirror.take(0, payload, repeated=False)
    assert mirror.next_number == 0


class Publisher:
    """Numbers its messages."""

    def __init__(self, context: zmq.Context[Any]) -> None:
        self._socket = context.socket(zmq.PUB)
        self.endpoint = f"tcp://127.0.0.1:{self._socket.bind_to_random_port('tcp://127.0.0.1')}"
        self.sent = 0

    def send(self, payload: bytes = b"", times: int = 1) -> None:
        for _ in range(times):
            self._socket.send_multipart((b"", self.sent.to_bytes(8, "big"), payload))
            self.sent += 1

    async def until_heard(self, heard: list[KvBatch]) -> None:
        """Publish until something is heard that was published from now on."""
        first = self.sent

        def sent_and_heard() -> bool:
            self.send()
            return bool(heard) and heard[-1].number >= first

        await eventually(sent_and_heard)


@contextlib.contextmanager
def published() -> Iterator[Publisher]:
    with zmq.Context() as context:
        try:
            yield Publisher(context)
        finally:
            context.destroy(linger=0)


@contextlib.contextmanager
def subscribed(publisher: Publisher, tell: Callable[[KvBatch], None]) -> Iterator[None]:
    subscriptions = KvSubscriptions(tell)
    subscriptions.follow({"r1": (publisher.endpoint, "")})
    try:
        yield
    finally:
        subscriptions.stop()


@contextlib.contextmanager
def exceptions_of_loop(raised: list[BaseException]) -> Iterator[None]:
    """Collect what callbacks raise. All tests share one loop, so its handler is put back, and it is also called for a
    task of another test that is collected meanwhile, without an exception."""

    def collect(_: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        if "exception" in context:
            raised.append(context["exception"])

    loop = asyncio.get_running_loop()
    loop.set_exception_handler(collect)
    try:
        yield
    finally:
        loop.set_exception_handler(None)


async def test_a_message_that_raises_does_not_make_the_router_deaf(caplog: pytest.LogCaptureFixture) -> None:
    """ZeroMQ's descriptor tells of what comes only when all was read that had come."""
    heard: list[KvBatch] = []

    def tell(batch: KvBatch) -> None:
        heard.append(batch)
        if batch.payload == b"a defect":
            raise RuntimeError("of ours")

    with published() as publisher, subscribed(publisher, tell):
        await publisher.until_heard(heard)
        publisher.send(b"a defect", times=20)
        publisher.send(times=500)
        await eventually(lambda: heard[-1].number == publisher.sent - 1)
        publisher.send()
        await eventually(lambda: heard[-1].number == publisher.sent - 1)
    assert len([line for line in caplog.messages if "could not be applied" in line]) == 20


async def test_a_burst_that_breaks_off_is_gone_on_with(monkeypatch: pytest.MonkeyPatch) -> None:
    heard: list[KvBatch] = []
    numbered = kv_subscriber.numbered

    def breaks(frames: list[bytes]) -> tuple[int, bytes] | None:
        if frames[-1] == b"a defect":
            raise RuntimeError("of ours")
        return numbered(frames)

    raised: list[BaseException] = []
    monkeypatch.setattr(kv_subscriber, "numbered", breaks)
    with exceptions_of_loop(raised), published() as publisher, subscribed(publisher, heard.append):
        await publisher.until_heard(heard)
        publisher.send(b"a defect")
        publisher.send(times=500)
        await eventually(lambda: heard[-1].number == publisher.sent - 1)
    assert [str(error) for error in raised] == ["of ours"]


# how much


async def test_a_message_larger_than_any_engines_is_not_taken_and_its_sender_heard_again() -> None:
    heard: list[KvBatch] = []
    with published() as publisher, subscribed(publisher, heard.append):
        await publisher.until_heard(heard)
        publisher.send(bytes(MAX_MESSAGE_BYTES))
        await eventually(lambda: heard[-1].number == publisher.sent - 1)
        publisher.send(bytes(MAX_MESSAGE_BYTES + 1))
        await publisher.until_heard(heard)
    assert max(len(batch.payload) for batch in heard) == MAX_MESSAGE_BYTES


async def test_large_messages_share_the_loop_as_many_small_ones_do() -> None:
    """Others get a turn between them, however many have come."""
    turns: list[int] = []
    heard: list[KvBatch] = []
    large = kv_subscriber.BURST_BYTES // 2 + 1

    async def others() -> None:
        while True:
            turns.append(sum(len(batch.payload) >= large for batch in heard))  # a small one may still be on its way
            await asyncio.sleep(0)

    with published() as publisher, subscribed(publisher, heard.append):
        await publisher.until_heard(heard)
        other = asyncio.create_task(others())
        publisher.send(bytes(large), times=20)
        await eventually(lambda: heard[-1].number == publisher.sent - 1)
        other.cancel()
    assert max(after - before for before, after in itertools.pairwise(turns)) <= 2


class Arrived:
    """A link on which all messages have arrived. Its descriptor is readable in every turn, as ZeroMQ's may be."""

    def __init__(self, socket: zmq.Socket[Any], messages: list[list[bytes]]) -> None:
        self.socket, self._messages, self._real = self, messages, socket
        self._descriptor = os.eventfd(1)

    def getsockopt(self, _: int) -> int:
        return self._descriptor

    def recv_multipart(self, _: int) -> list[bytes]:
        if not self._messages:
            raise zmq.Again
        return self._messages.pop()

    def close(self) -> None:
        os.close(self._descriptor)
        self._real.close()


async def test_a_turn_of_the_loop_reads_one_burst_however_often_the_descriptor_wakes_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    many = 10 * kv_subscriber.BURST
    messages = [[b"", number.to_bytes(8, "big"), b""] for number in reversed(range(many))]
    monkeypatch.setattr(kv_subscriber, "KvLink", lambda socket, _: Arrived(socket, messages))
    heard: list[KvBatch] = []
    subscriptions = KvSubscriptions(heard.append)
    subscriptions.follow({"r1": ("tcp://127.0.0.1:1", "")})
    turns = [0]
    for _ in range(2 * many // kv_subscriber.BURST):
        await asyncio.sleep(0)
        turns.append(len(heard))
    subscriptions.stop()
    assert [batch.number for batch in heard] == list(range(many))
    assert max(after - before for before, after in itertools.pairwise(turns)) == kv_subscriber.BURST


def test_what_is_kept_until_a_replay_comes_is_bounded_in_bytes() -> None:
    mirror = KvMirror("m")
    payload = message(1.0, b"x" * (PATIENCE_BYTES // 4 - 100))
    for number in range(1, 5):
        assert mirror.take(number, payload, repeated=False)[0] == []
    changes, _ = mirror.take(5, payload, repeated=False)
    assert (changes, mirror.next_number) == ([], 6), "given up: it begins with what is heard"
    for number in range(10, 14):
        mirror.take(number, payload, repeated=False)
    assert sum(map(len, mirror._ahead.values())) == mirror._ahead_bytes <= PATIENCE_BYTES
    changes, _ = mirror.take(6, message(2.0), repeated=True)
    assert mirror.take(7, message(2.0), repeated=True) == ([], None)
    for number in (8, 9):
        mirror.take(number, message(2.0), repeated=True)
    assert (mirror.next_number, mirror._ahead, mirror._ahead_bytes) == (14, {}, 0)


def test_a_restart_leaves_nothing_of_what_was_kept() -> None:
    mirror = KvMirror("m")
    for number in (5, 6, 9):
        mirror.take(number, message(1.0, stored(number, None, number)), repeated=number == 5)
    assert mirror.next_number == 6 + 1
    mirror.take(0, message(9.0), repeated=False)
    assert (mirror.next_number, mirror._ahead, mirror._ahead_bytes) == (1, {}, 0)
    assert len(mirror._ahead) <= PATIENCE_MESSAGES


# how dear


@contextlib.contextmanager
def counted() -> Iterator[dict[str, int]]:
    """Pieces of chains that were walked, hashes that were computed, and holds of the index that were moved."""
    counts = dict.fromkeys(("pieces", "hashes", "moved"), 0)

    def back(chain: kv_mirror.Chain | None) -> Iterator[kv_mirror.Chain]:
        for piece in true_back(chain):
            counts["pieces"] += 1
            yield piece

    def digest(data: bytes) -> bytes:
        counts["hashes"] += 1
        hashed: bytes = true_digest(data)
        return hashed

    def unlink(index: PrefixIndex, hold: int) -> None:
        counts["moved"] += 1
        true_unlink(index, hold)

    true_back, true_digest, true_unlink = kv_mirror._back, xxhash.xxh3_128_digest, PrefixIndex._unlink
    with (
        patch.object(kv_mirror, "_back", back),
        patch.object(xxhash, "xxh3_128_digest", digest),
        patch.object(PrefixIndex, "_unlink", unlink),
    ):
        yield counts


def test_a_chain_ends_where_no_prompt_is_compared_any_more() -> None:
    followed = Followed()
    with counted() as counts:
        followed.take(message(1.0, stored(0, None, 7, pages=10 * MAX_BLOCKS)))
    assert len(followed.mirror) == MAX_BLOCKS
    assert counts["hashes"] == MAX_BLOCKS
    assert followed.holds([7] * BLOCK_TOKENS * MAX_BLOCKS) == MAX_BLOCKS
    followed.take(message(2.0, stored(10**6, MAX_BLOCKS - 1, 8), stored(10**7, 5 * MAX_BLOCKS, 9)))
    assert len(followed.mirror) == MAX_BLOCKS
    followed.take(message(3.0, ["BlockRemoved", [MAX_BLOCKS - 1, MAX_BLOCKS, 5 * MAX_BLOCKS]]))
    assert followed.holds([7] * BLOCK_TOKENS * MAX_BLOCKS) == MAX_BLOCKS - 1


def test_a_page_as_long_as_a_message_is_hashed_no_further_either() -> None:
    followed = Followed()
    tokens = [1] * BLOCK_TOKENS * (MAX_BLOCKS + 100)
    with counted() as counts:
        followed.take(message(1.0, ["BlockStored", [1], None, tokens, len(tokens), None]))
    assert counts["hashes"] == MAX_BLOCKS == followed.holds(tokens)
    assert len(followed.mirror._places[1].rest) < BLOCK_TOKENS * kv_mirror.TOKEN_BYTES
    followed.take(message(2.0, ["BlockRemoved", [1]]))
    assert followed.holds(tokens) == 0


def test_what_is_stored_at_the_end_of_a_long_chain_costs_what_it_says() -> None:
    followed, depth = Followed(), MAX_BLOCKS - 1
    followed.take(message(1.0, stored(0, None, 7, pages=depth)))
    with counted() as counts:
        followed.take(message(2.0, *(stored(10**6 + one, depth - 1, one) for one in range(SEVERAL))))
    assert counts["hashes"] == SEVERAL
    # a walk back through the whole chain for each of them would be 2,047 pieces
    longest = depth // kv_mirror.SEGMENT_BLOCKS + kv_mirror.SEGMENT_BLOCKS
    assert SEVERAL < counts["pieces"] <= SEVERAL * longest * 1.1
    assert longest < 100
    assert counts["moved"] <= 4 * SEVERAL
    assert followed.holds([7] * BLOCK_TOKENS * depth + [SEVERAL - 1] * BLOCK_TOKENS) == depth + 1


def test_a_prompt_told_page_by_page_is_one_change() -> None:
    mirror = KvMirror("m")
    tokens = range(2 * BLOCK_TOKENS * kv_mirror.SEGMENT_BLOCKS)
    pages = [["BlockStored", [one], one - 1 if one else None, [one], 1, None] for one in tokens]
    (change,), _ = mirror.take(0, message(1.0, *pages), repeated=False)
    assert (change.hashes, change.gone) == (chain_tokens(root("m"), tokens).hashes, False)


def branchy(followed: Followed, depth: int) -> None:
    """A chain each block of which is a node: another one hangs beside the next."""
    for one in range(depth):
        parent = one - 1 if one else None
        followed.take(message(1.0, stored(one, parent, 7), stored(10**6 + one, parent, 8)))


def test_a_message_that_costs_more_than_it_says_ends_in_believing_nothing() -> None:
    followed, depth = Followed(), 200
    branchy(followed, depth)
    payload = message(2.0, *(stored(2 * 10**6 + one, depth - 1, one) for one in range(SEVERAL)))
    known = followed.index.held[0]
    with counted() as counts:
        followed.take(payload)
    assert SEVERAL * depth > 5 * (FREE_STEPS + len(payload) // BYTES_PER_STEP), "what it would have cost"
    # the last one is done, and what was held before is dropped once
    assert counts["moved"] <= FREE_STEPS + len(payload) // BYTES_PER_STEP + depth + known + SEVERAL
    assert 0 not in followed.index.held
    followed.take(message(3.0, stored(10**7, depth - 1, 9)))
    chain = [7] * BLOCK_TOKENS * depth + [9] * BLOCK_TOKENS
    assert followed.holds(chain) == depth + 1, "it is followed as before"


def test_a_removal_in_the_middle_passes_each_hold_once() -> None:
    """Not once for each node above it, and not again for every page of a node below which nothing is held any more."""
    followed, depth = Followed(), 300
    branchy(followed, depth)
    followed.take(message(2.0, stored(5 * 10**6, None, 1, pages=100)))
    for one in range(2):  # what makes it a node with others below it
        chain = chain_tokens(root("m"), [1] * BLOCK_TOKENS * 100 + [one] * BLOCK_TOKENS).hashes
        followed.index.hold(1, followed.index.match(chain))
    before, holds = followed.index.steps, followed.index.holds
    with counted() as counts:
        followed.take(message(3.0, *(["BlockRemoved", [5 * 10**6 + page]] for page in reversed(range(100)))))
    assert followed.holds([1] * BLOCK_TOKENS * 100) == 0
    assert followed.index.steps - before <= 100 * 2 + holds
    assert counts["moved"] == 1


def test_nothing_is_forgotten_for_what_engines_do() -> None:
    """200 requests end in one step, each a conversation of which others begin as it does, at a hundred places."""
    followed, depth = Followed(), 100
    branchy(followed, depth)
    followed.take(message(2.0, *(stored(10**7 + one, depth - 1, 100 + one) for one in range(200))))
    assert all(
        followed.holds([7] * BLOCK_TOKENS * depth + [100 + one] * BLOCK_TOKENS) == depth + 1 for one in range(200)
    )
    assert EVERYTHING.hashes == b""
