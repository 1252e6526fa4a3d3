"""Which connections are let in, which give way, and which have waited for too long: the table alone, by a clock."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from contracts.errors import ConfigError, ConnectionsExhausted, SlipstreamError, TooManyConnections
from gateway.http.config import ConnectionsConfig
from gateway.http.connections import (
    FEW,
    LATE_S,
    LINGERING_S,
    MALFORMED_LOGGED_EVERY_S,
    MAX_LINGERING,
    ConnectionTable,
    Waiting,
)
from gateway.http.networks import forwarded_address, network_of, trusted_networks


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
        self.kept_for: str | None = None
        self.ended: str | None = None

    def reads_on(self, waiting: Waiting) -> bool:
        return False

    def overdue(self, waiting: Waiting) -> None:
        self.ended = waiting.value

    def closes_later(self) -> bool:
        return False

    def give_way(self, refusal: SlipstreamError) -> None:
        assert isinstance(refusal, ConnectionsExhausted)
        self.ended = "gave way"

    def cut(self) -> None:
        self.ended = "cut"


def table(clock: Clock | None = None, counts: Counts | None = None, **settings: object) -> ConnectionTable:
    config = ConnectionsConfig(**settings)  # type: ignore[arg-type]
    return ConnectionTable(config, counts or Counts(), clock or Clock())  # type: ignore[arg-type]


def admitted(
    of: ConnectionTable, network: str = "", waiting: Waiting | None = Waiting.HEAD, *, served_for: str = ""
) -> Held:
    """served_for: the organization whose request is served on it, and counted by its limits."""
    held = Held(network)
    assert of.admit(held) is None
    if waiting is not Waiting.HEAD:
        of.wait(held, waiting)
    if served_for:
        of.keep(held, served_for)
        of.reserved(held)
    return held


@pytest.mark.parametrize("waiting", [*Waiting, None])
def test_a_full_table_has_room_for_one_more_whatever_its_strangers_wait_for(waiting: Waiting | None) -> None:
    """Bodies of the sign-in page, and refusals that were said at a pace, kept everybody else out."""
    clock, counts = Clock(), Counts()
    of = table(clock, counts, max_connections=200)
    served = admitted(of, "customer", served_for="o")
    held = [admitted(of, str(number % 20), waiting) for number in range(199)]
    clock.now_s += 3 * LATE_S
    new = [admitted(of, "customer") for _ in range(4)]
    for number in range(50):
        admitted(of, str(number % 20), waiting)
    assert [each.ended for each in (served, *new)] == [None] * 5
    assert sum(each.ended is not None for each in held) == 54
    assert counts.ended == {"gave_way_limit": 54}


def test_a_connection_that_serves_a_good_key_never_gives_way() -> None:
    counts = Counts()
    of = table(counts=counts, max_connections=3)
    served = [admitted(of, waiting=waiting, served_for="o") for waiting in (None, Waiting.BODY, Waiting.READING)]
    refusal = of.admit(Held())
    assert isinstance(refusal, ConnectionsExhausted)
    assert refusal.retry_after_s is not None
    assert counts.ended == {"refused": 1}
    of.answered(served[1])
    admitted(of, served_for="o")
    assert [each.ended for each in served] == [None, "gave way", None]


def test_few_that_are_turned_away_linger_and_none_for_long() -> None:
    clock = Clock()
    of = table(clock)
    turned_away = [Held() for _ in range(MAX_LINGERING + 2)]
    for each in turned_away:
        of.linger(each)
    assert [each.ended for each in turned_away] == ["cut", "cut"] + [None] * MAX_LINGERING
    of.forget(turned_away[2])
    clock.now_s += LINGERING_S
    of.sweep()
    assert [each.ended for each in turned_away[2:]] == [None] + ["cut"] * (MAX_LINGERING - 1)
    assert len(of) == 0


def test_an_address_has_a_limit_of_its_own_and_gives_way_to_itself_only() -> None:
    counts = Counts()
    of = table(counts=counts, max_connections_per_address=2)
    stranger = admitted(of, "b", Waiting.IDLE)
    busy, idle = admitted(of, "a", None, served_for="o"), admitted(of, "a", Waiting.IDLE)
    admitted(of, "a", None, served_for="o")
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
    assert (network_of(one) == network_of(other)) is same


def test_a_trusted_proxy_has_no_limit_and_neither_has_anybody_when_it_is_off() -> None:
    of = table(max_connections_per_address=1, trusted_proxies=("10.1.0.0/16", "::1"))
    assert of.network_of("2002:a01:203::1") == "10.1.2.3", "an address anybody may give itself"
    for address in ("10.1.2.3", "::ffff:10.1.2.3", "::1"):
        assert of.network_of(address) == ""
        admitted(of, of.network_of(address), served_for="o")
        admitted(of, of.network_of(address), served_for="o")
    off = table(max_connections_per_address=0)
    for _ in range(3):
        admitted(off, off.network_of("10.0.0.9"), served_for="o")


@pytest.mark.parametrize(
    ("forwarded_for", "address"),
    [
        ("", ""),
        ("203.0.113.9", "203.0.113.9"),
        ("198.51.100.1, 203.0.113.9", "203.0.113.9"),
        ("198.51.100.1, 203.0.113.9 , 10.1.0.4", "203.0.113.9"),
        ("10.1.0.5,10.1.0.4", ""),
        ("2001:db8::1", "2001:db8::1"),
        ("198.51.100.1, 203.0.113.9:4711, 10.1.0.4:80", "203.0.113.9"),
        ("[2001:db8::1]:4711", "2001:db8::1"),
    ],
)
def test_a_trusted_proxy_says_whose_request_it_passes_on(forwarded_for: str, address: str) -> None:
    assert forwarded_address(forwarded_for, trusted_networks(("10.1.0.0/16",))) == address


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
    of = table(clock, max_connections=40, max_connections_per_address=14)
    share = 4
    plain: list[Held] = []
    since_s: dict[Held, float] = {}
    owned: dict[Held, str] = {}
    """By connection that is kept: the organization, empty once its limits count the request."""

    def oldest(among: list[Held]) -> Held | None:
        def rank(held: Held) -> tuple[bool, float]:
            owes = held.waiting in (Waiting.HEAD, Waiting.BODY, Waiting.UNREAD, Waiting.READING)
            return not (owes and clock.now_s - since_s[held] >= LATE_S), since_s[held]

        return min((each for each in among if each not in owned), key=rank, default=None)

    def next_to_go(among: list[Held]) -> Held | None:
        counts = Counter(each.network for each in among if each.network and each not in owned)
        count = max(counts.values(), default=0)
        if count > FEW:
            crowds = {network for network, size in counts.items() if size == count}
            return oldest([each for each in among if each.network in crowds]) if len(crowds) == 1 else None
        return oldest(among)

    def gone(held: Held) -> None:
        plain.remove(held)
        owned.pop(held, None)

    for _ in range(8_000):
        clock.now_s += chance.choice((0.01, 0.02, 0.4)) + chance.random() / 1_000  # no two at once
        if chance.random() < 0.5 or not plain:
            new = Held(chance.choice(("", *"abcdefgh", "a", "a")))
            neighbours = [each for each in plain if each.network == new.network]
            before, refused, alike = list(plain), False, False
            if new.network and len(neighbours) >= 14:
                wanted = oldest(neighbours)
                refused = wanted is None
                if wanted is not None:
                    gone(wanted)
            if not refused and len(plain) >= 40:
                wanted = next_to_go(plain)
                may_go = [each for each in plain if each not in owned]
                refused, alike = not may_go, bool(may_go) and wanted is None
                if wanted is not None:
                    gone(wanted)
            assert (of.admit(new) is not None) == refused
            ended = [each for each in before if each.ended]
            if alike:  # two networks have as many: either is right
                assert len(ended) == len(before) - len(plain) + 1
                for each in ended:
                    if each in plain:
                        gone(each)
            assert ended == [each for each in before if each not in plain]
            if not refused:
                plain.append(new)
                since_s[new] = clock.now_s
        else:
            held = chance.choice(plain)
            choice = chance.choice((*Waiting, None, "gone", "keep", "reserved", "answered"))
            if choice == "gone":
                of.forget(held)
                of.forget(held)
                gone(held)
            elif choice == "keep":
                of.keep(held, organization := chance.choice("op"))
                if held not in owned and list(owned.values()).count(organization) < share:
                    owned[held] = organization
            elif choice == "reserved":
                of.reserved(held)
                owned[held] = ""
            elif choice == "answered":
                of.answered(held)
                if owned.pop(held, None) is not None:
                    since_s[held] = clock.now_s
            else:
                assert choice is None or isinstance(choice, Waiting)
                of.wait(held, choice)
                since_s[held] = clock.now_s
        assert {each: each.kept_for for each in plain if each.kept_for is not None} == owned
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
