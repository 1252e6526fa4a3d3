"""The form of a key: what is refused without asking anybody."""

from __future__ import annotations

import hashlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contracts.errors import InvalidKey
from gateway.auth.keys import (
    ADMIN_PREFIX,
    ALPHABET,
    LENGTH,
    PREFIX,
    check,
    hash_of,
    imported_hash,
    is_foreign,
    mint,
    unknown,
)

PEPPER = b"p" * 32


def test_minted_key_is_well_formed_and_shows_only_its_end() -> None:
    minted = mint(PEPPER)
    check(minted.secret)
    assert minted.secret.startswith(PREFIX)
    assert len(minted.secret) == LENGTH == 46
    assert minted.hash == hash_of(minted.secret, PEPPER)
    assert len(minted.hash) == 32
    assert minted.display == f"sk-slip-…{minted.secret[-4:]}"
    assert minted.secret not in repr(minted)
    assert mint(PEPPER).secret != minted.secret


def test_hash_depends_on_the_pepper() -> None:
    secret = mint(PEPPER).secret
    assert hash_of(secret, PEPPER) != hash_of(secret, b"q" * 32)


@given(position=st.integers(len(PREFIX), LENGTH - 1), character=st.sampled_from(ALPHABET))
def test_one_wrong_character_is_noticed(position: int, character: str) -> None:
    """CRC-32 finds every error that fits in 32 bits, hence every single wrong character."""
    secret = mint(PEPPER).secret
    wrong = secret[:position] + character + secret[position + 1 :]
    if wrong == secret:
        check(wrong)
    else:
        with pytest.raises(InvalidKey):
            check(wrong)


@given(left=st.integers(len(PREFIX), LENGTH - 2))
def test_swapped_neighbours_are_noticed(left: int) -> None:
    secret = mint(PEPPER).secret
    swapped = secret[:left] + secret[left + 1] + secret[left] + secret[left + 2 :]
    if swapped != secret:
        with pytest.raises(InvalidKey):
            check(swapped)


@pytest.mark.parametrize(
    ("secret", "message"),
    [
        ("", "not a Slipstream API key. Keys of this deployment start with sk-slip-"),
        ("sk-1234", "not a Slipstream API key. Keys of this deployment start with sk-slip-"),
        ("sk-proj-abcdef", r"a key of OpenAI's \(sk-proj-…\), which is not valid here. Keys .* start with sk-slip-"),
        ("sk-ant-api03-abcdef", r"a key of Anthropic's \(sk-ant-…\)"),
        (PREFIX, "46 characters, this one has 8"),
        (PREFIX + "a" * 39, "this one has 47"),
        (PREFIX + "ä" * 38, "checksum"),
        (PREFIX + "\ud800" * 38, "checksum"),
        (PREFIX + "0" * 38, "checksum"),
    ],
)
def test_malformed_keys_are_refused_with_the_reason(secret: str, message: str) -> None:
    with pytest.raises(InvalidKey, match=message) as caught:
        check(secret)
    assert secret == "" or secret == PREFIX or secret not in caught.value.message


@pytest.mark.parametrize(
    ("secret", "foreign"),
    [
        ("sk-Q1cUj0r3T2sVYl9aXb7d5w", True),
        ("sk-1234567", True),
        ("sk-12", False),
        ("sk-" + "x" * 400, False),
        ("sk-proj-4fx" + "x" * 40, False),
        ("sk-ant-api03-4f" + "x" * 40, False),
        ("sk-é" + "x" * 20, False),
        (PREFIX + "x" * 38, False),
        (ADMIN_PREFIX + "x" * 38, False),
    ],
)
def test_only_keys_of_litellms_form_may_have_been_imported(secret: str, foreign: bool) -> None:
    assert is_foreign(secret) is foreign
    by_sha256 = imported_hash(hashlib.sha256(secret.encode()).digest(), PEPPER)
    assert (hash_of(secret, PEPPER) == by_sha256) is foreign
    if foreign:
        check(secret)
        assert "sk-slip-" in unknown(secret)
        with pytest.raises(InvalidKey, match="start with sk-slip-admin-"):
            check(secret, ADMIN_PREFIX)
