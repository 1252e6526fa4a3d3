"""A token of the worker stands for one key for a while; nothing else does."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contracts.errors import AuthError, InvalidKey
from contracts.generation import Caller, Tier
from contracts.service_class import ServiceClass
from gateway.auth import delegation
from gateway.auth.key_record import KeyRecord
from gateway.auth.keys import hash_of, mint
from gateway.limits.levels import Level, Levels, Limits, Rule
from gateway.limits.priorities import Priorities, Priority
from tests.examples import examples

PEPPER = b"pepper"
NOW_S = 1_800_000_000.0


def test_it_stands_for_its_key_until_it_ends() -> None:
    key_hash = mint(PEPPER).hash
    token = delegation.delegated(key_hash, PEPPER, NOW_S)
    assert delegation.key_hash_of(token, PEPPER, NOW_S + delegation.VALID_S) == key_hash
    with pytest.raises(InvalidKey, match="clocks"):  # with ExpiredKey each line of a batch would fail for good
        delegation.key_hash_of(token, PEPPER, NOW_S + delegation.VALID_S + 1)
    with pytest.raises(InvalidKey):
        delegation.key_hash_of(token, b"another", NOW_S)


@given(st.text(max_size=200))
@examples(1_000)
def test_nothing_else_is_one(text: str) -> None:
    for forged in (text, delegation.PREFIX + text, f"{delegation.PREFIX}{'0' * 64}.9999999999.{text}"):
        with pytest.raises(AuthError):
            delegation.key_hash_of(forged, PEPPER, NOW_S)


def test_a_stored_hash_is_no_signature() -> None:
    """A hash of the table is an HMAC under the same pepper, of another text."""
    body = f"{delegation.PREFIX}{'0' * 64}.9999999999"
    with pytest.raises(InvalidKey):
        delegation.key_hash_of(f"{body}.{hash_of(body, PEPPER).hex()}", PEPPER, NOW_S)


def test_lines_run_in_the_lowest_class_and_only_budgets_count_them() -> None:
    rules = (
        Rule(Level.KEY, "k", None, Limits(requests_per_minute=5, money_micro_per_month=7)),
        Rule(Level.PROJECT, "p", Tier.CHAT, Limits(max_concurrency=1)),
    )
    priorities = Priorities(chat=Priority(ServiceClass.INTERACTIVE, 300, 50))
    key = KeyRecord(Caller("o", "p", "k"), Levels.of("o", rules), priorities=priorities)
    lines = key.for_lines()
    assert lines.line
    assert not key.line
    assert lines.caller == key.caller
    assert [rule.limits for rule in lines.levels.rules] == [Limits(money_micro_per_month=7)]
    assert lines.priorities.chat == Priority(ServiceClass.OFFLINE, 300, 50)
    assert lines.priorities.autocomplete.service_class is ServiceClass.OFFLINE
