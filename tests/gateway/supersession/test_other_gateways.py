"""Keystrokes at two gateways with a real Valkey between them."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import hiredis
import msgspec
import pytest

from contracts.dated_request_id import mint
from gateway.supersession import other_gateways
from gateway.supersession.lineage import Digests
from gateway.supersession.other_gateways import OtherGateways
from gateway.supersession.supersession import Supersession
from storage.valkey_command import pack
from tests.gateway.limits.conftest import _valkey_binary
from tests.gateway.limits.store import Store
from tests.gateway.supersession.serving import served
from tests.gateway.supersession.test_lineage import keystroke
from tests.waiting import eventually

GUARD_S = 60.0
DIGESTS = Digests(b"secret")
MARKER = b"the last word"
SECRET_TEXT = "password = 'geheim'"


class Gateway:
    """What of a gateway knows keystrokes."""

    def __init__(self, url: str, digests: Digests = DIGESTS) -> None:
        self.elsewhere = OtherGateways(url, "test", 5.0, digests)
        self.supersession = Supersession(digests, self.elsewhere)
        self.elsewhere.on_told = self.supersession.told


@contextlib.asynccontextmanager
async def gateways(url: str, *digests: Digests) -> AsyncIterator[list[Gateway]]:
    running = [Gateway(url, each) for each in digests or (DIGESTS, DIGESTS)]
    for gateway in running:
        await gateway.elsewhere.start()
    try:
        async with asyncio.timeout(GUARD_S):
            for gateway in running:
                await gateway.elsewhere.wait_ready()
            yield running
    finally:
        for gateway in running:
            await gateway.elsewhere.stop()


@pytest.fixture
def store() -> Iterator[Store]:
    with tempfile.TemporaryDirectory(prefix="typing-") as folder:
        server = Store(_valkey_binary(), Path(folder))
        server.start()
        yield server
        server.stop()


async def settled(*running: Gateway) -> None:
    """Return once whatever these have said by now has been heard by all of them."""
    for speaker in running:
        await speaker.elsewhere._valkey.call(pack(("PING",)))  # its records are read, its messages sent
        await speaker.elsewhere._valkey.call(pack(("PING",)))
    for listener in running:
        heard = asyncio.Event()
        listener.elsewhere.on_told = functools.partial(_told, listener.supersession, heard)
        message = other_gateways._encode(other_gateways.Told(MARKER, "", "", 0, b""))
        await running[0].elsewhere._valkey.call(
            pack(("PUBLISH", listener.elsewhere._channel(listener.elsewhere._name), message))
        )
        await heard.wait()
        listener.elsewhere.on_told = listener.supersession.told


def _told(supersession: Supersession, heard: asyncio.Event, lineage: bytes, *rest: Any) -> None:
    if lineage == MARKER:
        heard.set()
    else:
        supersession.told(lineage, *rest)


@pytest.mark.parametrize(("older", "newer"), [("x = ", "x = 1"), ("x = 1", "x = ")], ids=["typed", "deleted"])
async def test_a_keystroke_at_another_gateway_ends_the_older_one(valkey_url: str, older: str, newer: str) -> None:
    async with gateways(valkey_url) as (one, other):
        first, second = mint(), mint()
        with served(one.supersession, first, keystroke(f"# {first}\n{older}", "")) as flight:
            await settled(one, other)
            with served(other.supersession, second, keystroke(f"# {first}\n{newer}", "")):
                await settled(one, other)
                assert flight.by == second


async def test_who_listens_is_judged_by_its_own_text(valkey_url: str) -> None:
    """The lineage is the same and the length would do, but the text is another."""
    async with gateways(valkey_url) as (one, other):
        first = mint()
        with served(one.supersession, first, keystroke(f"# {first}\nabc", "")) as flight:
            await settled(one, other)
            for text in ("axcd", "ax", "abc", "abc" + "d" * 257):
                with served(other.supersession, mint(), keystroke(f"# {first}\n{text}", "")):
                    await settled(one, other)
                    assert flight.by is None


async def test_a_message_that_names_the_wrong_text_ends_nothing(valkey_url: str) -> None:
    async with gateways(valkey_url) as (one, _):
        typed = keystroke("abc", "")
        with served(one.supersession, mint(), typed) as flight:
            lineage = DIGESTS.lineage(typed)
            one.supersession.told(lineage, flight.request_id, "newer", 2, DIGESTS.prefix(keystroke("ax", ""), 2))
            one.supersession.told(lineage, "another", "newer", 2, DIGESTS.prefix(typed, 2))
            one.supersession.told(b"another", flight.request_id, "newer", 2, DIGESTS.prefix(typed, 2))
            one.supersession.told(lineage, flight.request_id, "newer", 300, DIGESTS.prefix(typed, 3))
            one.elsewhere._take(b"nonsense")
            assert flight.by is None
            one.supersession.told(lineage, flight.request_id, "newer", 2, DIGESTS.prefix(typed, 2))
            assert flight.by == "newer"


async def test_a_record_that_came_later_is_not_ended_by_an_older_request(valkey_url: str) -> None:
    async with gateways(valkey_url) as (one, other):
        older, newer = mint(1_800_000_000), mint(1_800_000_001)
        with served(one.supersession, newer, keystroke(f"# {newer}\nab", "")) as flight:
            await settled(one, other)
            with served(other.supersession, older, keystroke(f"# {newer}\na", "")):
                await settled(one, other)
                assert flight.by is None


async def test_gateways_of_another_deployment_know_nothing_of_each_other(valkey_url: str) -> None:
    async with gateways(valkey_url, DIGESTS, Digests(b"other")) as (one, other):
        first = mint()
        with served(one.supersession, first, keystroke(f"# {first}\na", "")) as flight:
            await settled(one, other)
            with served(other.supersession, mint(), keystroke(f"# {first}\nab", "")):
                await settled(one, other)
                assert flight.by is None


async def test_what_valkey_holds_has_no_text_and_lapses(store: Store) -> None:
    async with gateways(store.url) as (one, other):
        with served(
            one.supersession, mint(), keystroke(SECRET_TEXT, SECRET_TEXT, path=SECRET_TEXT, session=SECRET_TEXT)
        ):
            await settled(one, other)
        with store.client() as client:
            (name,) = client.keys("*")
            value = client.get(name)
            assert isinstance(value, bytes)
            assert b"geheim" not in name + value
            record = msgspec.msgpack.decode(value, type=other_gateways.Record)
            assert (record.length, len(record.digest)) == (len(SECRET_TEXT), 16)
            assert 0 < client.pttl(name) <= other_gateways.RECORD_MS


async def test_without_valkey_each_gateway_has_its_own_and_comes_back(store: Store) -> None:
    async with gateways(store.url) as (one, other):
        store.kill()
        await eventually(lambda: not one.elsewhere._valkey.connected and not other.elsewhere._valkey.connected)
        with served(one.supersession, mint(), keystroke("a", "")) as flight:
            with served(other.supersession, mint(), keystroke("ab", "")):
                assert flight.by is None
            with served(one.supersession, "here", keystroke("ab", "")):
                assert flight.by == "here"
        store.start()
        for gateway in (one, other):
            await gateway.elsewhere.wait_ready()
        with served(one.supersession, mint(), keystroke("a", "")) as flight:
            await settled(one, other)
            with served(other.supersession, mint(), keystroke("ab", "")):
                await settled(one, other)
                assert flight.by is not None


def test_only_another_gateways_older_record_is_answered_with_a_message(monkeypatch: pytest.MonkeyPatch) -> None:
    other, typed, sent = OtherGateways("redis://127.0.0.1:1", "test", 1.0, DIGESTS), keystroke("ab", ""), []
    monkeypatch.setattr(other, "_send", lambda words, done=None: sent.append(words))
    newer = other_gateways.Record(other._name, "newer", 2, DIGESTS.prefix(typed, 2))
    older = other_gateways.Record("another gateway", "older", 1, DIGESTS.prefix(typed, 1))
    own = msgspec.structs.replace(older, gateway=other._name)
    another_text = msgspec.structs.replace(older, digest=DIGESTS.prefix(keystroke("x", ""), 1))
    records = [other_gateways._encode(each) for each in (own, another_text)]
    for reply in (None, b"", b"nonsense", hiredis.ReplyError("x"), OSError(), *records):
        other._held(newer, typed, b"l", reply)
        assert not sent
    other._held(newer, typed, b"l", other_gateways._encode(older))
    told = other_gateways.Told(b"l", "older", "newer", 2, older.digest)
    assert sent == [("PUBLISH", other._channel("another gateway"), other_gateways._encode(told))]
