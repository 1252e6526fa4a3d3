"""Prefix chains: two prompts share exactly as many hashes as they share leading blocks."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from contracts.generation import Caller, ChatPrompt, Generation, Sampling, TextPrompt, Tier
from contracts.prefix import (
    BLOCK_BYTES,
    BLOCK_TOKENS,
    MAX_BLOCKS,
    block_hashes,
    chain_bytes,
    chain_tokens,
    of_generation,
    root,
)
from tests.prefix_chains import length, shared_blocks


def generation(prompt: ChatPrompt | TextPrompt, salt: str = "", model: str = "m") -> Generation:
    return Generation("req_1", Caller("o", "p", "k"), Tier.CHAT, model, prompt, Sampling(8), cache_salt=salt)


@given(st.binary(max_size=2_000), st.binary(max_size=2_000), st.binary(max_size=2_000))
def test_shared_blocks_are_the_shared_leading_blocks(common: bytes, left: bytes, right: bytes) -> None:
    start = root("m")
    one, two = common + left, common + right
    naive = 0
    while one[naive * BLOCK_BYTES : (naive + 1) * BLOCK_BYTES] == two[
        naive * BLOCK_BYTES : (naive + 1) * BLOCK_BYTES
    ] and (naive + 1) * BLOCK_BYTES <= min(len(one), len(two)):
        naive += 1
    assert shared_blocks(chain_bytes(start, one), chain_bytes(start, two)) == naive


@given(st.lists(st.integers(0, 2**31 - 1), max_size=400))
def test_token_chains_have_one_hash_per_whole_block(ids: list[int]) -> None:
    assert length(chain_tokens(root("m"), ids)) == len(ids) // BLOCK_TOKENS


def test_a_block_in_another_place_or_after_another_prefix_has_another_hash() -> None:
    block, other = b"a" * BLOCK_BYTES, b"b" * BLOCK_BYTES
    first, second = block_hashes(chain_bytes(root("m"), block + block).hashes)
    assert first != second
    assert block_hashes(chain_bytes(root("m"), other + block).hashes)[1] != second


def test_roots_keep_their_parts_apart() -> None:
    roots = {root("a", "bc"), root("ab", "c"), root("a", "b", "c"), root("a", "", "bc"), root("a", salt="bc")}
    assert len(roots) == 5


def test_another_tenant_or_model_shares_nothing() -> None:
    prompt = TextPrompt(("x" * 1_000,))
    mine = of_generation(generation(prompt, salt="s1"))
    assert mine.hashes
    assert shared_blocks(mine, of_generation(generation(prompt, salt="s1"))) == length(mine)
    assert shared_blocks(mine, of_generation(generation(prompt, salt="s2"))) == 0
    assert shared_blocks(mine, of_generation(generation(prompt, salt="s1", model="n"))) == 0


def test_a_longer_conversation_begins_with_the_shorter_one() -> None:
    first = ({"role": "system", "content": "s" * 600}, {"role": "user", "content": "u" * 600})
    more = (*first, {"role": "assistant", "content": "a" * 600}, {"content": "again", "role": "user"})
    short, long = of_generation(generation(ChatPrompt(first))), of_generation(generation(ChatPrompt(more)))
    assert shared_blocks(short, long) >= length(short) - 1 > 2


def test_the_order_of_json_keys_does_not_matter() -> None:
    one = ChatPrompt(({"role": "user", "content": "u" * 600},))
    two = ChatPrompt(({"content": "u" * 600, "role": "user"},))
    assert of_generation(generation(one)) == of_generation(generation(two))


def test_chains_are_bounded() -> None:
    assert length(chain_bytes(root("m"), b"x" * BLOCK_BYTES * (MAX_BLOCKS + 10))) == MAX_BLOCKS
