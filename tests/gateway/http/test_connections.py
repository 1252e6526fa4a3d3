"""Which connections are let in, which give way, and which have waited for too long: the table alone, by a clock."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from contracts.errors import ConfigError, ConnectionsExhausted, TooManyConnections
from gateway.http.config import ConnectionsConfig
from gateway.http.connections import (
    GIVES_WAY,
    MALFORMED_LOGGED_EVERY_S,
    SLOW_HEAD_S,
    ConnectionTable,
    Waiting,
    trusted_networks,
)


class Clock:
    now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


class Counts:
    def __init__(self) -> None:
        self.ended: Counter[str] = Counter()
        self.held = 0
        self.malformed: Counter[str] = Counter()

    def connection_ended(self, reason: str) -> None:
        self.ended[reason] += 1

    def connections_held(self, count: int) -> None:
        self.held = count

    def request_malformed(self, code: str) -> None:
        self.malformed[code] += 1


class Held:
    """A connection; ended: what the table told it."""

    def __init__(self, network: str = "") -> None:
        self.network = network
        self.waiting: Waiting | None = None
        self.ended: str | None = None

    def overdue(self, waiting: Waiting) -> None:
        self.ended = waiting.value

    def give_way(self) -> None:
        self.ended = "gave way"


def table(clock: Clock | None = None, counts: Counts | None = None, **settings: object) -> ConnectionTable:
    config = ConnectionsConfig(**settings)  # type: ignore[arg-type]
    return ConnectionTable(config, counts or Counts(), clock or Clock())  # type: ignore[arg-type]


def admitted(of: ConnectionTable, network: str = "", waiting: Waiting | None = Waiting.HEAD) -> Held:
    held = Held(network)
    assert of.admit(held) is None
    if waiting is not Waiting.HEAD:
        of.wait(held, waiting)
    return held


def test_at_the_limit_the_oldest_idle_one_gives_way_then_the_oldest_that_has_not_asked() -> None:
    clock, counts = Clock(), Counts()
    of = table(clock, counts, max_connections=5)
    served, silent, sending = admitted(of, waiting=None), admitted(of), admitted(of, waiting=Waiting.BODY)
    idle = [admitted(of, waiting=Waiting.IDLE) for _ in range(2)]
    for expected in (*idle, silent):
        new = admitted(of, waiting=None)
        assert expected.ended == "gave way"
        assert new.ended is None
    assert [each.ended for each in (served, sending)] == [None, None]
    refusal = of.admit(Held())
    assert isinstance(refusal, ConnectionsExhausted)
    assert refusal.retry_after_s is not None
    assert len(of) == 5
    assert counts.ended == {"gave_way_limit": 3, "refused": 1}


def test_connections_that_never_ask_push_out_each_other_and_nobody_who_comes_back() -> None:
    """A stranger's silent connections took the place of customers' idle ones, and held it."""
    clock = Clock()
    of = table(clock, max_connections=10)
    silent = [admitted(of) for _ in range(4)]
    clock.now_s += SLOW_HEAD_S
    kept, unread = [admitted(of, waiting=Waiting.IDLE) for _ in range(5)], admitted(of, waiting=Waiting.UNREAD)
    for expected in (*silent, unread):
        new = admitted(of)
        assert expected.ended == "gave way"
        assert new.ended is None
    for _ in range(50):
        clock.now_s += SLOW_HEAD_S
        admitted(of)
    assert all(each.ended is None for each in kept)


def test_an_address_has_a_limit_of_its_own_and_gives_way_to_itself_only() -> None:
    counts = Counts()
    of = table(counts=counts, max_connections_per_address=2)
    stranger = admitted(of, "b", Waiting.IDLE)
    busy, idle = admitted(of, "a", None), admitted(of, "a", Waiting.IDLE)
    admitted(of, "a", None)
    assert idle.ended == "gave way"
    assert isinstance(of.admit(Held("a")), TooManyConnections)
    assert (stranger.ended, busy.ended) == (None, None)
    of.forget(busy)
    admitted(of, "a")
    assert counts.ended == {"gave_way_address_limit": 1, "address_refused": 1}


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("10.0.0.1", "10.0.0.2", False),
        ("2001:db8:0:1::1", "2001:db8:0:1:ffff::9", True),
        ("2001:db8:0:1::1", "2001:db8:0:2::1", False),
        ("::ffff:10.0.0.1", "10.0.0.1", True),
        ("2002:c633:6401:1::1", "2002:c633:6401:2::1", True),
        ("64:ff9b::198.51.100.1", "64:ff9b::198.51.100.2", False),
        ("fe80::1%eth0", "fe80::2%eth1", True),
    ],
)
def test_an_ipv6_client_is_its_network_and_a_mapped_one_is_ipv4(one: str, other: str, same: bool) -> None:
    of = table()
    assert (of.network_of(one) == of.network_of(other)) is same


def test_a_trusted_proxy_has_no_limit_and_neither_has_anybody_when_it_is_off() -> None:
    of = table(max_connections_per_address=1, trusted_proxies=("10.1.0.0/16", "::1"))
    assert of.network_of("2002:a01:203::1") == "10.1.2.3", "an address anybody may give itself"
    for address in ("10.1.2.3", "::ffff:10.1.2.3", "::1"):
        assert of.network_of(address) == ""
        admitted(of, of.network_of(address), None)
        admitted(of, of.network_of(address), None)
    off = table(max_connections_per_address=0)
    for _ in range(3):
        admitted(off, off.network_of("10.0.0.9"), None)


def test_a_trusted_proxy_that_is_no_address_stops_the_start() -> None:
    for entry in ("proxy.internal", "10.0.0.1/8"):
        with pytest.raises(ConfigError, match=r"gateway\.connections\.trusted_proxies\[1\]") as error:
            trusted_networks(("10.0.0.1", entry))
        assert entry in error.value.message


def test_each_wait_has_its_own_time_and_being_served_has_none() -> None:
    clock, counts = Clock(), Counts()
    of = table(clock, counts, head_timeout_s=1, body_timeout_s=2, idle_timeout_s=3, unread_timeout_s=4)
    held = {waiting: admitted(of, waiting=waiting) for waiting in (*Waiting, None)}
    order = []
    for _ in range(100):
        clock.now_s += 0.1
        of.sweep()
        order += [each.ended for each in held.values() if each.ended and each.ended not in order]
    assert order == ["head", "body", "reading", "idle", "unread", "closing"]
    assert held[None].ended is None
    assert counts.held == len(held), "they are forgotten when they are gone, not when they are told"


def test_against_the_plain_account_of_who_waits_since_when() -> None:
    """The ordered tables against one list that is searched every time."""
    chance = random.Random(7)
    clock = Clock()
    of = table(clock, max_connections=12, max_connections_per_address=4, head_timeout_s=5, body_timeout_s=9,
               idle_timeout_s=7, unread_timeout_s=3)  # fmt: skip
    timeout_s = {
        Waiting.HEAD: 5,
        Waiting.BODY: 9,
        Waiting.READING: 9,
        Waiting.IDLE: 7,
        Waiting.UNREAD: 3,
        Waiting.CLOSING: 3,
    }
    plain: list[tuple[Held, float]] = []

    def rank(held: Held, since_s: float) -> int:
        slow = held.waiting is Waiting.HEAD and clock.now_s - since_s >= SLOW_HEAD_S
        return -1 if slow else (Waiting.UNREAD, Waiting.READING, Waiting.IDLE, Waiting.HEAD).index(held.waiting)

    def oldest(among: list[tuple[Held, float]]) -> Held | None:
        able = [(rank(h, s), s, n, h) for n, (h, s) in enumerate(among) if h.waiting in GIVES_WAY]
        return min(able, key=lambda each: each[:3])[3] if able else None

    for _ in range(5_000):
        clock.now_s += chance.choice((0.25, 0.5, 1.0))
        if chance.random() < 0.5 or not plain:
            new = Held(chance.choice("abcde"))
            neighbours = [each for each in plain if each[0].network == new.network]
            wanted: Held | None = None
            refused = False
            victims = []
            if len(neighbours) >= 4:
                wanted = oldest(neighbours)
                refused = wanted is None
                victims += [wanted] if wanted else []
            if not refused and len(plain) - len(victims) >= 12:
                wanted = oldest([each for each in plain if each[0] not in victims])
                refused = wanted is None
                victims += [wanted] if wanted else []
            assert (of.admit(new) is not None) == refused
            assert all(victim.ended == "gave way" for victim in victims)
            plain = [each for each in plain if each[0] not in victims]
            if not refused:
                plain.append((new, clock.now_s))
        else:
            number = chance.randrange(len(plain))
            held, _ = plain.pop(number)
            choice = chance.choice((*Waiting, None, "gone"))
            if choice == "gone":
                of.forget(held)
                of.forget(held)
            else:
                assert choice is None or isinstance(choice, Waiting)
                of.wait(held, choice)
                plain.append((held, clock.now_s))
        late = {h for h, s in plain if h.waiting is not None and clock.now_s - s >= timeout_s[h.waiting]}
        of.sweep()
        assert {held for held, _ in plain if held.ended} == late
        for held in [held for held, _ in plain if held.ended]:
            of.forget(held)
        plain = [each for each in plain if not each[0].ended]
        assert len(of) == len(plain)


def test_malformed_requests_cost_the_log_one_line_a_minute(caplog: pytest.LogCaptureFixture) -> None:
    clock, counts = Clock(), Counts()
    connections = table(clock, counts)
    for _ in range(150):
        connections.malformed("invalid_request")
        connections.sweep()
    connections.malformed("request_headers_too_large")
    clock.now_s += MALFORMED_LOGGED_EVERY_S
    connections.sweep()
    clock.now_s += MALFORMED_LOGGED_EVERY_S
    connections.sweep()  # nothing came since: nothing to say
    assert [record.args for record in caplog.records] == [(1,), (150,)]
    assert counts.malformed == {"invalid_request": 150, "request_headers_too_large": 1}
