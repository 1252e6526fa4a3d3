"""Prompts that engines do not read: overtaken, withdrawn or lost before their first token."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from contracts.generation import Tier
from contracts.lease import LeaseEnd
from contracts.prefix import BLOCK_TOKENS, HASH_BYTES
from contracts.usage import Finish, Usage
from router.config import SloClass
from router.core.events import Cancel, Release
from tests.examples import examples
from tests.router.core_driver import Core
from tests.router.fakes import fleet

BLOCKS = 64
TOKENS = BLOCKS * BLOCK_TOKENS


def chain(*parts: tuple[int, int]) -> bytes:
    """Hashes of a prompt made of (text, blocks) one after the other; what begins alike has the same hashes."""
    hashes, before = b"", 0
    for text, blocks in parts:
        for number in range(blocks):
            before = hash((before, text, number)) & (2**64 - 1)
            hashes += before.to_bytes(HASH_BYTES, "big")
    return hashes


def file(text: int, blocks: int = BLOCKS) -> dict[str, Any]:
    return {
        "prefix_hashes": chain((text, blocks)), "prefix_kind": "tokens", "prompt_tokens": blocks * BLOCK_TOKENS,
        "affinity": b"%d" % text,
    }  # fmt: skip


def ends(core: Core, lease_id: str, read_tokens: int = 0) -> None:
    """It was overtaken by a newer keystroke before its first token."""
    core.do(Release(1, LeaseEnd(lease_id, Finish.COMPLETE, Usage(prompt_tokens=read_tokens))))


def held(core: Core, replica_id: str, hashes: bytes) -> int:
    """Blocks of a chain that a replica is thought to hold."""
    replica = core.core.fleet.replicas[replica_id]
    index = core.core.fleet.pools[replica.pool].index
    return index.overlap(index.match(hashes), replica.slot)


def two() -> Core:
    return Core(fleet(replicas=("r1", "r2"), max_concurrency=100))


@pytest.mark.parametrize("way", ["overtaken", "withdrawn"])
def test_a_prompt_that_was_never_read_is_held_nowhere(way: str) -> None:
    core = two()
    where = core.placed("a", **file(1))
    if way == "overtaken":
        ends(core, "a")
    else:
        core.do(Cancel(1, "a"))
    assert held(core, where, chain((1, BLOCKS))) == 0


def test_what_was_read_of_it_is_held() -> None:
    core = two()
    where = core.placed("a", **file(1))
    ends(core, "a", read_tokens=10 * BLOCK_TOKENS + 3)
    assert held(core, where, chain((1, BLOCKS))) == 10


def test_an_engine_that_says_it_read_it_all_holds_it() -> None:
    core = two()
    where = core.placed("a", **file(1))
    ends(core, "a", read_tokens=TOKENS)
    assert held(core, where, chain((1, BLOCKS))) == BLOCKS


def test_the_newer_key_takes_over_what_the_older_one_was_to_compute() -> None:
    core = Core(fleet(replicas=("r1",), max_concurrency=100))
    for name in ("a", "b"):
        core.placed(name, **file(1, 32))
    replica = core.core.fleet.replicas["r1"]
    assert replica.prefill_tokens == 32 * BLOCK_TOKENS + 1
    ends(core, "a", read_tokens=8 * BLOCK_TOKENS)
    assert replica.prefill_tokens == 24 * BLOCK_TOKENS
    assert replica.live["gateway", "b"].work_ahead_tokens == 8 * BLOCK_TOKENS + 1, "the rest is its own now"
    core.began("b")
    assert held(core, "r1", chain((1, 32))) == 32


def test_other_files_are_not_forgotten_because_one_was_not_read() -> None:
    core = Core(fleet(replicas=("r1",), max_concurrency=100))
    core.polled(capacity_tokens=1_000_000)
    for number in (2, 3):
        core.placed(f"f{number}", **file(number))
        core.began(f"f{number}")
        core.over(f"f{number}", TOKENS, cached=0)
    core.placed("old", **file(4))
    core.began("old")
    core.over("old", TOKENS, cached=TOKENS // 2)  # this engine tells cached tokens
    core.placed("a", **file(1))
    ends(core, "a")
    core.placed("b", **file(1))
    core.began("b", 1.0)
    core.over("b", TOKENS, cached=0)
    assert [held(core, "r1", chain((number, BLOCKS))) for number in (1, 2, 3, 4)] == [BLOCKS] * 4
    assert core.core.fleet.replicas["r1"].fill >= 1.0, "nothing was evicted"


def test_an_engine_with_work_of_overtaken_keys_is_not_taken_for_idle() -> None:
    slos = (SloClass(Tier.CHAT, 1 << 31, 60.0, 0.0),)
    core = Core(fleet(replicas=("r1", "r2"), max_concurrency=100), slos=slos)
    core.learn(0.001, ("r1", "r2"))
    for number in range(6):
        core.placed(f"a{number}", excluded_replicas=("r2",), **file(1))
        if number:
            ends(core, f"a{number - 1}")
    assert core.core.fleet.replicas["r1"].prefill_tokens == TOKENS
    for text in range(2, 8):
        name = f"b{text}"
        assert core.placed(name, **file(text)) == "r2"
        core.began(name)
        core.over(name, TOKENS)


texts = st.lists(st.tuples(st.integers(0, 2), st.integers(1, 4)), min_size=1, max_size=3)


class Reading(RuleBasedStateMachine):
    """One replica against plain lists: what it has read, and what it was given and has not read yet."""

    def __init__(self) -> None:
        super().__init__()
        self.core = Core(fleet(replicas=("r1",), max_concurrency=1_000))
        self.read: list[bytes] = []
        self.unread: dict[str, bytes] = {}
        self.number = 0

    def blocks(self, hashes: bytes, others: list[bytes]) -> int:
        """The most blocks that one of the others has in common with this chain."""
        most = 0
        for other in others:
            blocks = 0
            while (end := (blocks + 1) * HASH_BYTES) <= min(len(hashes), len(other)) and hashes[:end] == other[:end]:
                blocks += 1
            most = max(most, blocks)
        return most

    @precondition(lambda self: len(self.unread) < 6)  # more would have to wait
    @rule(parts=texts)
    def given_(self, parts: list[tuple[int, int]]) -> None:
        self.number += 1
        name, hashes = f"l{self.number}", chain(*parts)
        tokens = len(hashes) // HASH_BYTES * BLOCK_TOKENS
        assert self.core.placed(name, prefix_hashes=hashes, prefix_kind="tokens", prompt_tokens=tokens) == "r1"
        self.unread[name] = hashes

    @precondition(lambda self: self.unread)
    @rule(data=st.data())
    def begins(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(sorted(self.unread)))
        hashes = self.unread.pop(name)
        self.core.began(name)
        self.read.append(hashes)
        if data.draw(st.booleans()):
            self.core.over(name, len(hashes) // HASH_BYTES * BLOCK_TOKENS)

    @precondition(lambda self: self.unread)
    @rule(data=st.data())
    def is_overtaken(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(sorted(self.unread)))
        hashes = self.unread.pop(name)
        blocks = data.draw(st.integers(0, len(hashes) // HASH_BYTES - 1))
        ends(self.core, name, blocks * BLOCK_TOKENS)
        self.read.append(hashes[: blocks * HASH_BYTES])

    @rule(parts=texts)
    def it_holds_what_it_has_read_and_what_it_was_given(self, parts: list[tuple[int, int]]) -> None:
        hashes = chain(*parts)
        assert held(self.core, "r1", hashes) == self.blocks(hashes, [*self.read, *self.unread.values()])

    @invariant()
    def nobody_counts_on_what_nobody_computes(self) -> None:
        before: list[bytes] = []
        for (_, name), live in self.core.core.fleet.replicas["r1"].prefilling.items():
            hashes = self.unread[name]
            assert live.read_blocks <= self.blocks(hashes, self.read)
            assert live.overlap_blocks <= self.blocks(hashes, [*self.read, *before])
            before.append(hashes)


Reading.TestCase.settings = examples(nightly=15, gate=15, stateful_step_count=20)
TestReading = Reading.TestCase
