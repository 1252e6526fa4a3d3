"""The line of keys that are looked up, while the database does not answer."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence

import pytest

from gateway.auth.key_record import KeyRecord, Reason, Refusal
from gateway.auth.lookups import Lookups
from tests.waiting import GUARD_S

READERS, BATCH_KEYS = 2, 10


class Database:
    """Answers when it is let."""

    def __init__(self) -> None:
        self.asked: list[Sequence[bytes]] = []
        self.answering = asyncio.Event()

    async def read(self, hashes: Sequence[bytes]) -> Mapping[bytes, KeyRecord | Refusal]:
        self.asked.append(hashes)
        await self.answering.wait()
        return {key_hash: Refusal(Reason.UNKNOWN) for key_hash in hashes}


@pytest.fixture
async def database() -> Database:
    return Database()


@pytest.fixture
async def lookups(database: Database) -> AsyncIterator[Lookups]:
    lookups = Lookups(database.read, lambda *_: None, readers=READERS, batch_keys=BATCH_KEYS)
    yield lookups
    await lookups.stop()


def key(number: int) -> bytes:
    return number.to_bytes(32)


async def test_who_has_given_up_is_not_asked_about(database: Database, lookups: Lookups) -> None:
    """They stayed in the line for ever: a key that is real waited behind all that came while the database hung."""
    for wave in range(5):
        numbers = range(wave * 100, (wave + 1) * 100)
        answers = await asyncio.gather(*(lookups.ask(key(number), key(number), 0.01) for number in numbers))
        assert answers == [None] * 100
    assert len(lookups) <= READERS * BATCH_KEYS, "only what the database is being asked about"

    asking = asyncio.create_task(lookups.ask(b"real", b"real", 30.0))
    await asyncio.sleep(0)
    database.answering.set()
    assert isinstance(await asking, Refusal)
    assert len(lookups) == 0
    assert [b"real"] in database.asked
    assert sum(map(len, database.asked)) <= READERS * BATCH_KEYS + 1


async def test_one_who_gives_up_leaves_the_others_theirs(database: Database, lookups: Lookups) -> None:
    for number in range(READERS):
        asyncio.create_task(lookups.ask(key(number), key(number), 30.0))  # noqa: RUF006  (the readers are busy now)
    await asyncio.sleep(0)
    patient = asyncio.create_task(lookups.ask(b"real", b"real", 30.0))
    assert await lookups.ask(b"real", b"real", 0.01) is None
    cancelled = asyncio.create_task(lookups.ask(b"real", b"real", 30.0))
    await asyncio.sleep(0)
    cancelled.cancel()
    await asyncio.wait([cancelled])
    database.answering.set()
    assert isinstance(await patient, Refusal)


async def test_who_has_an_answer_takes_no_later_one_from_the_line() -> None:
    """A second asks for the same key after the first's answer has come, and before the first has taken note of it."""
    second: list[asyncio.Task[object]] = []
    more = asyncio.Event()

    async def read(hashes: Sequence[bytes]) -> Mapping[bytes, KeyRecord | Refusal]:
        if hashes == [b"other"]:
            second.append(asyncio.create_task(line.ask(b"key", b"key", 30.0)))
            await more.wait()
        return {key_hash: Refusal(Reason.UNKNOWN) for key_hash in hashes}

    line = Lookups(read, lambda *_: None, readers=1, batch_keys=1)
    asking = [asyncio.create_task(line.ask(name, name, 30.0)) for name in (b"key", b"other")]
    assert isinstance(await asking[0], Refusal)
    await asyncio.sleep(0)
    assert not second[0].done()
    more.set()
    for asked in (*asking, *second):
        assert isinstance(await asyncio.wait_for(asked, GUARD_S), Refusal)
    await line.stop()
