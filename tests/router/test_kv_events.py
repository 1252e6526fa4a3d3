"""KV events from the embedded engine's real publisher, over real ZeroMQ, into the core's prefix index."""

from __future__ import annotations

import itertools
import random
from collections.abc import AsyncIterator, Iterator
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from contracts.desired_state import DesiredState, Model, Pool, Replica
from contracts.generation import Tier
from contracts.prefix import BLOCK_TOKENS, chain_tokens, root
from engines.embedded.config import KVEventsConfig
from engines.embedded.kv.publisher import EventPublisher
from router.config import RouterConfig
from router.core.decisions import Decision
from router.core.dispatcher import Dispatcher
from router.core.events import KvBatch, StatePublished
from router.core.kv_changes import apply
from router.core.kv_mirror import EVERYTHING, PATIENCE_MESSAGES, KvMirror
from router.core.prefix_index import PrefixIndex
from router.kv_subscriber import END_OF_REPLAY, numbered
from router.policies import registry
from tests.examples import examples
from tests.router.adapted import adapted_fleet, served
from tests.router.core_driver import Core
from tests.router.kv_follower import KvFollower
from tests.waiting import eventually

PAGE_TOKENS = 16
ANYWHERE = KVEventsConfig(endpoint="tcp://127.0.0.1:*", replay_endpoint="tcp://127.0.0.1:*", topic="kv")


class FakeCache:
    """Prompts stored as the engine's radix cache would store them: whole pages, each once, removed from the end."""

    def __init__(self, publisher: EventPublisher) -> None:
        self.publisher = publisher
        self.pages: dict[tuple[str, tuple[int, ...]], int] = {}
        self.numbers = iter(range(1_000_000))

    def store(self, tokens: tuple[int, ...], salt: str = "") -> None:
        above: int | None = None
        for end in range(PAGE_TOKENS, len(tokens) + 1, PAGE_TOKENS):
            known = self.pages.get((salt, tokens[:end]))
            if known is None:
                known = self.pages[salt, tokens[:end]] = next(self.numbers)
                self.publisher.stored([known], [tokens[end - PAGE_TOKENS : end]], (above, salt))
            above = known
        self.publisher.flush()

    def remove_some(self, dice: random.Random) -> None:
        leaves = [
            key for key in self.pages if not any(o[0] == key[0] and o[1][:-PAGE_TOKENS] == key[1] for o in self.pages)
        ]
        salt, tokens = dice.choice(leaves)
        self.publisher.removed(self.pages.pop((salt, tokens)))
        self.publisher.flush()

    def overlap(self, tokens: tuple[int, ...], salt: str = "") -> int:
        """Whole blocks of ours that are there."""
        pages = 0
        while (salt, tokens[: (pages + 1) * PAGE_TOKENS]) in self.pages and (pages + 1) * PAGE_TOKENS <= len(tokens):
            pages += 1
        return pages * PAGE_TOKENS // BLOCK_TOKENS


@pytest.fixture
def publisher() -> Iterator[EventPublisher]:
    made = EventPublisher(ANYWHERE, PAGE_TOKENS)
    yield made
    made.close()


@pytest.fixture
async def router(publisher: EventPublisher) -> AsyncIterator[KvFollower]:
    made = KvFollower(publisher.endpoint, publisher.replay_endpoint)
    yield made
    made.subscriptions.stop()


async def joined(router: KvFollower, cache: FakeCache) -> None:
    """Publish until something is heard."""
    marks = itertools.count(1_000_001)

    def stored_and_heard() -> bool:
        cache.store((next(marks),) * PAGE_TOKENS)
        return router.joined

    await eventually(stored_and_heard)


def prompt(dice: random.Random) -> tuple[int, ...]:
    stem = dice.randrange(3)
    return tuple([stem] * dice.randrange(1, 200) + [dice.randrange(50) for _ in range(dice.randrange(1, 200))])


@pytest.mark.parametrize("lost", [0, 3])
async def test_the_index_holds_what_the_engine_holds_also_after_lost_messages(
    router: KvFollower, publisher: EventPublisher, lost: int
) -> None:
    cache, dice = FakeCache(publisher), random.Random(lost)
    await joined(router, cache)
    router.drop = lost
    prompts = [(prompt(dice), dice.choice(("", "salt"))) for _ in range(60)]
    for number, (tokens, salt) in enumerate(prompts):
        cache.store(tokens, salt)
        if number % 3 == 2:
            cache.remove_some(dice)
    await eventually(
        lambda: all(router.overlap(tokens, salt) == cache.overlap(tokens, salt) for tokens, salt in prompts)
    )
    assert any(cache.overlap(tokens, salt) for tokens, salt in prompts)
    assert router.overlap(prompts[0][0], "other salt") == 0
    if lost:
        assert router.heard_repeated, "the gap was noticed"


class Told:
    """An engine's cache as its events tell it: pages by the tokens up to their end, removed from the end."""

    def __init__(self, page_tokens: int) -> None:
        self.page_tokens = page_tokens
        self.pages: dict[tuple[int, ...], int] = {}
        self.stored_so_far = 0

    def store(self, tokens: tuple[int, ...]) -> list[list[object]]:
        events: list[list[object]] = []
        size = self.page_tokens
        for end in range(size, len(tokens) + 1, size):
            if tokens[:end] not in self.pages:
                self.pages[tokens[:end]] = self.stored_so_far
                parent = self.pages.get(tokens[: end - size])
                page = list(tokens[end - size : end])
                events.append(["BlockStored", [self.stored_so_far], parent, page, size, None, "GPU"])
                self.stored_so_far += 1
        return events

    def remove(self, tokens: tuple[int, ...], pages: int) -> list[list[object]]:
        """The last of a prompt's pages, with all that builds on them."""
        keep = max(len(tokens) // self.page_tokens - pages, 0) * self.page_tokens
        first = tokens[: keep + self.page_tokens]
        gone = [held for held in self.pages if held[: len(first)] == first]
        gone.sort(key=len, reverse=True)
        return [["BlockRemoved", [self.pages.pop(held)], "GPU"] for held in gone]

    def blocks(self, tokens: tuple[int, ...]) -> int:
        """Leading whole blocks of ours that are there."""
        ends = range(0, len(tokens) + 1, BLOCK_TOKENS)
        held = {page[:end] for page in self.pages for end in ends if end and end <= len(page)}
        return max(end // BLOCK_TOKENS for end in ends if not end or tokens[:end] in held)


RUNS = st.lists(st.tuples(st.integers(0, 2), st.integers(1, 1_300)), min_size=1, max_size=4)
"""Tokens and how many of each: prompts with beginnings in common, also of more than one segment of blocks."""


@examples(nightly=100)
@given(
    st.sampled_from([16, 48, 64, 128]),
    st.lists(RUNS, min_size=1, max_size=4),
    st.lists(st.tuples(st.integers(0, 3), st.one_of(st.none(), st.integers(1, 40)), st.booleans()), max_size=20),
)
def test_what_is_told_is_what_is_held_whatever_the_pages_are(
    page_tokens: int, runs: list[list[tuple[int, int]]], steps: list[tuple[int, int | None, bool]]
) -> None:
    prompts = [tuple(token for token, count in run for _ in range(count)) for run in runs]
    engine, mirror, index = Told(page_tokens), KvMirror("m"), PrefixIndex(1_000_000)
    events: list[list[object]] = []
    for which, pages, ends in [*steps, (0, None, True)]:
        tokens = prompts[which % len(prompts)]
        events += engine.store(tokens) if pages is None else engine.remove(tokens, pages)
        if ends:
            payload = message(float(mirror.next_number), *events)
            changes, _ = mirror.take(mirror.next_number, payload, repeated=False)
            apply(changes, index, 0, len(payload))
            events = []
            for told in prompts:
                match = index.match(chain_tokens(root("m"), told).hashes)
                assert index.overlap(match, 0) == engine.blocks(told)
    assert len(mirror) == len(engine.pages)


def message(at: float, *events: list[object]) -> bytes:
    return msgspec.msgpack.encode([at, list(events), 0])


def stored(page: int, parent: int | None, first: int) -> list[object]:
    tokens = list(range(first, first + BLOCK_TOKENS))
    return ["BlockStored", [page], parent, tokens, BLOCK_TOKENS, None, "GPU"]


def test_an_engine_that_begins_anew_is_empty() -> None:
    mirror = KvMirror("m")
    for number in range(3):
        mirror.take(number, message(number, stored(number, None, 100 * number)), False)
    changes, first = mirror.take(0, message(50.0, stored(7, None, 900)), False)
    assert first is None
    assert [(len(change.hashes) // 16, change.gone) for change in changes] == [(0, True), (1, False)]
    assert len(mirror) == 1


def test_a_late_copy_changes_nothing_and_a_hole_in_the_replay_empties() -> None:
    mirror = KvMirror("m")
    mirror.take(0, message(1.0, stored(1, None, 0)), False)
    assert mirror.take(0, message(1.0, stored(1, None, 0)), True) == ([], None)
    assert mirror.take(5, message(6.0, stored(6, 1, 64)), False) == ([], 1)
    assert mirror.take(6, message(7.0, stored(7, 6, 128)), False) == ([], None), "asked once"
    changes, _ = mirror.take(4, message(5.0, stored(5, None, 500)), True)
    assert [change.gone for change in changes] == [True, False]


def test_what_was_published_after_the_replay_was_answered_is_not_lost() -> None:
    """It comes by another socket, so that it may be read before the replay, and nothing may come after it."""
    mirror = KvMirror("m")
    mirror.take(0, message(1.0, stored(1, None, 0)), False)
    assert mirror.take(2, message(3.0, stored(3, 2, 128)), False) == ([], 1)
    assert mirror.take(3, message(4.0, stored(4, 3, 192)), False) == ([], None)
    changes, wanted = mirror.take(1, message(2.0, stored(2, 1, 64)), True)
    assert ([len(change.hashes) // 16 for change in changes], wanted) == ([2, 3, 4], None)
    assert mirror.take(2, message(3.0, stored(3, 2, 128)), True) == ([], None), "the replay has it too"
    assert mirror.take(4, message(5.0, ["BlockRemoved", [4]]), False)[0][0].gone


def test_an_engine_that_repeats_nothing_is_followed_from_where_it_is_heard() -> None:
    mirror = KvMirror("m", replays=False)
    changes, wanted = mirror.take(4, message(1.0, stored(1, None, 0)), repeated=False)
    assert ([change.gone for change in changes], wanted) == ([False], None)
    changes, wanted = mirror.take(7, message(2.0, stored(2, None, 0)), repeated=False)
    assert (changes[0], wanted) == (EVERYTHING, None), "what was removed between them nobody knows"


def test_a_replay_that_never_comes_is_not_waited_for_for_ever() -> None:
    mirror = KvMirror("m")
    assert mirror.take(4, message(1.0, stored(1, None, 0)), repeated=False) == ([], 0)
    for number in range(5, 5 + PATIENCE_MESSAGES):
        changes, wanted = mirror.take(number, message(number, stored(number, None, 0)), repeated=False)
        assert wanted is None
    assert changes
    assert mirror.next_number == 5 + PATIENCE_MESSAGES


@pytest.mark.parametrize("before", [(b"kv",), (b"",), (b"", b"kv")], ids=["live", "SGLang", "vLLM"])
def test_a_message_is_read_as_each_engine_frames_it(before: tuple[bytes, ...]) -> None:
    assert numbered((*before, b"\0" * 7 + b"\5", b"payload")) == (5, b"payload")
    assert numbered((*before, END_OF_REPLAY, b"")) is None
    assert numbered((*before, b"payload")) is None


def test_a_page_longer_than_our_blocks_takes_all_that_it_touches_with_it() -> None:
    """vLLM has 128 tokens in one on a CPU."""
    mirror = KvMirror("m")
    pages: list[list[object]] = [
        ["BlockStored", [7, 8], None, list(range(256)), 128, None, "CPU"],
        ["BlockRemoved", [8], "CPU"],
    ]
    changes, _ = mirror.take(0, message(1.0, *pages), False)
    assert [(len(change.hashes) // 16, change.gone) for change in changes] == [(4, False), (3, True)]
    assert changes[0].hashes.startswith(changes[1].hashes)


def test_nonsense_is_ignored() -> None:
    core = Dispatcher(RouterConfig(), registry.create("prefix"))
    state = DesiredState(1, (Model("m", Tier.CHAT, "p", 8192),), (Pool("p", "sglang", (Replica("r1", "http://e"),)),))
    core.handle(StatePublished(state), 0.0)
    decisions: list[Decision] = []
    named: list[object] = ["BlockStored", [1], None, [1, 2], 2, None, "GPU", 7]
    for payload in (
        b"",
        b"\xc1",
        b"\x91" * 100_000,
        message(1.0, ["BlockStored"]),
        message(1.0, named),
        msgspec.msgpack.encode({"a": 1}),
    ):
        decisions += core.handle(KvBatch("r1", 0, payload), 0.0)
    assert decisions == []


@pytest.mark.parametrize("keys", [["lora-1", "salt"], ["salt"], ["lora-1"], None])
@pytest.mark.parametrize("as_map", [True, False])
def test_what_an_adapter_computed_is_known_under_its_root(keys: list[str] | None, as_map: bool) -> None:
    """vLLM puts its name in front of the salt into the extra keys; SGLang and the embedded engine have fields."""
    tokens = list(range(BLOCK_TOKENS))
    event: Any = {
        "type": "BlockStored", "block_hashes": [1], "parent_block_hash": None, "token_ids": tokens,
        "block_size": BLOCK_TOKENS, "lora_id": None, "medium": "GPU", "lora_name": "lora-1",
        "extra_keys": None if keys is None else [keys],
    }  # fmt: skip
    mirror = KvMirror("m", replays=False)
    payload = msgspec.msgpack.encode([0.0, [event if as_map else list(event.values())], 0])
    (change,), _ = mirror.take(0, payload, repeated=False)
    salt = "salt" if keys is not None and "salt" in keys else ""
    assert change.hashes == chain_tokens(root("m", "lora-1", salt=salt), tokens).hashes


def unnamed(page: int, parent: int | None, first: int, **more: object) -> dict[str, object]:
    """As the default format of SGLang before 0.5.23 has it: of what an adapter computed too."""
    tokens = list(range(first, first + BLOCK_TOKENS))
    event: dict[str, object] = {"type": "BlockStored", "block_hashes": [page], "parent_block_hash": parent}
    return {**event, "token_ids": tokens, "block_size": BLOCK_TOKENS, "lora_id": None, "medium": "GPU", **more}


def heard(core: Core, number: int, event: dict[str, object]) -> None:
    core.do(KvBatch("r1", number, msgspec.msgpack.encode([float(number), [event], 0])))


def known_to(core: Core, adapter: str, first: int) -> int:
    """Blocks of a prompt of one block that the router takes for cached."""
    chain = chain_tokens(root("m", adapter), range(first, first + BLOCK_TOKENS))
    return core.core.fleet.pools["pool"].index.match(chain.hashes).blocks


def test_blocks_of_an_engine_that_names_no_adapter_are_not_taken_for_the_models() -> None:
    core = Core(adapted_fleet(2, replicas=("r1",)))
    heard(core, 0, unnamed(1, None, 0))
    assert known_to(core, "", 0) == 1, "no adapter was used there yet"
    served(core, "with-adapter", "lora-1")
    heard(core, 1, unnamed(2, None, 1_000))
    heard(core, 2, unnamed(3, 1, BLOCK_TOKENS))
    assert (known_to(core, "", 1_000), known_to(core, "lora-1", 1_000)) == (0, 0), "it may be the adapter's"
    heard(core, 3, {"type": "BlockRemoved", "block_hashes": [1]})
    assert known_to(core, "", 0) == 0, "what is gone is gone"


def test_an_engine_that_names_adapters_is_believed_of_the_models_blocks_too() -> None:
    core = Core(adapted_fleet(2, replicas=("r1",)))
    served(core, "with-adapter", "lora-1")
    heard(core, 0, unnamed(1, None, 0, lora_name="lora-1"))
    heard(core, 1, unnamed(2, None, 1_000))
    assert (known_to(core, "lora-1", 0), known_to(core, "", 0)) == (1, 0)
    assert (known_to(core, "", 1_000), known_to(core, "lora-1", 1_000)) == (1, 0)


def test_an_engine_begun_anew_is_asked_anew_whether_it_names_adapters() -> None:
    core = Core(adapted_fleet(2, replicas=("r1",)))
    served(core, "with-adapter", "lora-1")
    heard(core, 1, unnamed(1, None, 0, lora_name="lora-1"))
    core.do(KvBatch("r1", 0, msgspec.msgpack.encode([99.0, [unnamed(2, None, 1_000)], 0])))
    assert known_to(core, "", 1_000) == 0
