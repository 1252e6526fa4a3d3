"""Looks up keys in batches, and detects answers that a change has overtaken.

Any client can invent keys with a valid checksum, and each needs one lookup. They wait in one queue and are looked up
together, so a flood costs one query for every `batch_keys` of them, and a valid key waits for the queries of the keys
before it. A caller that gives up leaves the queue, which has only one timeout's keys while the database hangs.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping, Sequence

from gateway.auth.key_record import Answer, KeyRecord, Refusal, tenants_of

MAX_READS = 4
"""Limit of reads of a key that changes while it is read."""
ALL = "*"
"""The announcement that any key may have changed."""

_log = logging.getLogger(__name__)

Read = Callable[[Sequence[bytes]], Awaitable[Mapping[bytes, KeyRecord | Refusal] | None]]
"""Returns the database's answer for each hash; None if the database is unreachable."""
Remember = Callable[[bytes, bytes, KeyRecord | Refusal], None]
"""Called with a key's fingerprint, hash and answer."""


class _Flight:
    """One key that callers wait for. askers: number of callers."""

    __slots__ = ("answer", "askers", "fingerprint", "key_hash", "reads")

    def __init__(self, fingerprint: bytes, key_hash: bytes) -> None:
        self.fingerprint = fingerprint
        self.key_hash = key_hash
        self.reads = 0
        self.askers = 0
        self.answer: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()


class _Question:
    """The flights of one query. heard: announcements since its start, which may make an answer stale."""

    __slots__ = ("flights", "heard")

    def __init__(self, flights: list[_Flight]) -> None:
        self.flights = flights
        self.heard: set[str] = set()


class Lookups:
    """read: queries the database. remember: called with each answer that no change has overtaken. readers: limit of
    concurrent queries. batch_keys: limit of keys in one query."""

    def __init__(self, read: Read, remember: Remember, *, readers: int, batch_keys: int) -> None:
        self._read = read
        self._remember = remember
        self._max_readers = readers
        self._batch_keys = batch_keys
        self._flights: dict[bytes, _Flight] = {}
        self._waiting: OrderedDict[bytes, _Flight] = OrderedDict()
        self._questions: set[_Question] = set()
        self._readers: set[asyncio.Task[None]] = set()

    def __len__(self) -> int:
        """Keys that wait or are being looked up."""
        return len(self._flights)

    async def ask(self, fingerprint: bytes, key_hash: bytes, timeout_s: float) -> Answer:
        """The answer, shared by all callers of this key; None if it is late or the database is unreachable."""
        flight = self._flights.get(key_hash)
        if flight is None:
            flight = self._flights[key_hash] = self._waiting[key_hash] = _Flight(fingerprint, key_hash)
            self._engage()
        flight.askers += 1
        try:
            # wait() instead of await: a caller that is cancelled or gives up must not cancel the others' answer
            done, _ = await asyncio.wait([flight.answer], timeout=timeout_s)
            return flight.answer.result() if done else None
        finally:
            flight.askers -= 1
            # the queue may have a later flight for the same key
            if not flight.askers and self._waiting.get(key_hash) is flight:
                del self._waiting[key_hash]
                self._land(flight, None)

    def changed(self, what: str) -> None:
        """Record an announcement: the hex of a key's hash, a tenant as `tenants_of` names it, or ALL."""
        for question in self._questions:
            question.heard.add(what)

    async def stop(self) -> None:
        """End all waits as if the database were unreachable. Idempotent."""
        waiting, self._waiting = self._waiting, OrderedDict()
        readers = list(self._readers)
        for reader in readers:
            reader.cancel()
        if readers:
            await asyncio.wait(readers)
        for flight in (*waiting.values(), *self._waiting.values()):
            self._land(flight, None)
        self._waiting.clear()

    def _engage(self) -> None:
        if self._waiting and len(self._readers) < self._max_readers:
            reader = asyncio.create_task(self._work(), name="key-lookups")
            self._readers.add(reader)
            reader.add_done_callback(self._disengage)

    def _disengage(self, reader: asyncio.Task[None]) -> None:
        self._readers.discard(reader)
        if not reader.cancelled() and (error := reader.exception()) is not None:
            _log.error("keys could not be looked up", exc_info=error)
            self._engage()  # for flights that still wait

    async def _work(self) -> None:
        while self._waiting:
            count = min(self._batch_keys, len(self._waiting))
            await self._put(_Question([self._waiting.popitem(last=False)[1] for _ in range(count)]))

    async def _put(self, question: _Question) -> None:
        answers: Mapping[bytes, KeyRecord | Refusal] | None = None
        self._questions.add(question)
        try:
            answers = await self._read([flight.key_hash for flight in question.flights])
        finally:
            self._questions.discard(question)
            for flight in question.flights:
                self._judge(flight, None if answers is None else answers[flight.key_hash], question.heard)

    def _judge(self, flight: _Flight, answer: Answer, heard: set[str]) -> None:
        """Remember the answer, or read again. Must not await between the last announcement and `remember`."""
        if answer is not None:
            if not _is_overtaken(flight.key_hash, answer, heard):
                self._remember(flight.fingerprint, flight.key_hash, answer)
            else:
                flight.reads += 1
                if flight.reads < MAX_READS and flight.askers:
                    self._waiting[flight.key_hash] = flight
                    self._waiting.move_to_end(flight.key_hash, last=False)
                    return
        self._land(flight, answer)

    def _land(self, flight: _Flight, answer: Answer) -> None:
        del self._flights[flight.key_hash]
        flight.answer.set_result(answer)


def _is_overtaken(key_hash: bytes, answer: KeyRecord | Refusal, heard: set[str]) -> bool:
    return bool(heard) and not heard.isdisjoint((ALL, key_hash.hex(), *tenants_of(answer)))
