"""The gateway's book of leases: what it names in a hello, and what grants meet."""

from __future__ import annotations

import pytest

from contracts.lease import Engine, Lease, LeaseEnd
from contracts.usage import Finish
from router.book import Crossing, LeaseBook
from tests.router.fakes import ask


def lease(lease_id: str) -> Lease:
    return Lease(lease_id, Engine("r1", "http://127.0.0.1/r1", "fake", "m"))


def holding(*lease_ids: str, endings_limit: int = 10) -> LeaseBook:
    book = LeaseBook(endings_limit)
    for lease_id in lease_ids:
        book.asked(ask(lease_id), 0.0)
        book.granted(lease(lease_id))
    return book


def named(book: LeaseBook) -> set[str]:
    return {held.lease_id for held in book.hello("gateway", "epoch").hello.leases}


def test_a_hello_names_live_leases_and_endings_the_router_has_not_heard() -> None:
    book = holding("live", "ended", "told")
    book.asked(ask("waiting"), 0.0)
    assert book.released(LeaseEnd("told", Finish.COMPLETE))
    ending = book.released(LeaseEnd("ended", Finish.ENGINE_ERROR, engine_fault=True))
    assert ending is not None
    book.remember((ending,))
    assert named(book) == {"live", "ended"}
    assert book.take_endings() == [ending]
    assert named(book) == {"live"}


def test_the_oldest_endings_are_forgotten_beyond_the_limit() -> None:
    book = holding("l1", "l2", "l3", endings_limit=2)
    for lease_id in ("l1", "l2", "l3"):
        ending = book.released(LeaseEnd(lease_id, Finish.COMPLETE))
        assert ending is not None
        book.remember((ending,))
    assert named(book) == {"l2", "l3"}


def test_grants_meet_those_who_wait_those_who_have_and_nobody() -> None:
    book = LeaseBook(10)
    book.asked(ask("l1"), 0.0)
    assert book.granted(lease("l1")) is Crossing.AWAITED
    assert book.granted(lease("l1")) is Crossing.KNOWN
    assert book.granted(lease("l2")) is Crossing.UNWANTED


def test_asks_are_sent_again_with_what_is_left_of_their_time() -> None:
    book = LeaseBook(10)
    book.asked(ask("l1", deadline_s=5.0), 100.0)
    (again,) = book.asks(103.0)
    assert (again.acquire.lease_id, again.acquire.deadline_ms) == ("l1", 2_000)


def test_first_tokens_of_live_leases_are_reported_again() -> None:
    book = holding("answers", "ends", "waits")
    assert book.began("answers", 0.25, 64)
    assert book.began("ends", 0.5, 0)
    assert not book.began("unknown", 0.5, 0)
    book.released(LeaseEnd("ends", Finish.COMPLETE))
    (again,) = book.reports()
    first = again.first_token
    assert (first.lease_id, first.ttft_ms, first.cached_tokens) == ("answers", 250, 64)


def test_a_lease_id_in_use_is_refused() -> None:
    with pytest.raises(ValueError, match="in use"):
        holding("l1").asked(ask("l1"), 0.0)


def test_a_lease_is_released_once() -> None:
    book = holding("l1")
    assert book.released(LeaseEnd("l1", Finish.COMPLETE))
    assert book.released(LeaseEnd("l1", Finish.COMPLETE)) is None
