"""Requests of one file go to one replica whatever their prompts begin with, and nobody's work to one that is idle."""

from __future__ import annotations

import random
from collections import Counter

import msgspec
import pytest

from contracts.desired_state import Canary, DesiredState, Model, Pool, Replica
from contracts.generation import Tier
from contracts.prefix import chain_tokens, root
from router.config import SloClass
from router.core.decisions import Granted
from router.core.reasons import Reason
from router.core.ring import affinity_key
from router.protocol import messages
from tests.router.core_driver import Core, refused
from tests.router.fakes import ask, fleet

REPLICAS = ("r1", "r2", "r3", "r4")


def prompt(dice: random.Random, tokens: int = 1_024) -> bytes:
    """The chain of a prompt that nobody has seen."""
    return chain_tokens(root("m"), [dice.randrange(1_000) for _ in range(tokens)]).hashes


def test_what_an_ask_names_comes_before_its_session_and_its_prompt() -> None:
    plain = ask("a")
    named = msgspec.structs.replace(plain, affinity=b"file")
    dice = random.Random(1)
    for session in ("", "one", "other"):
        other = msgspec.structs.replace(named, session_id=session, prefix_hashes=prompt(dice), lease_id="b")
        assert affinity_key(other) == affinity_key(named)
    assert len({affinity_key(one) for one in (plain, named, msgspec.structs.replace(plain, affinity=b"g"))}) == 3


def test_it_crosses_the_line() -> None:
    one = msgspec.structs.replace(ask("a"), affinity=bytes(range(16)), idle_replica="r1")
    message = messages.acquire(one, one.deadline_s)
    assert messages.ask_of(message.acquire) == one
    assert messages.ask_of(messages.acquire(ask("b"), 1).acquire).affinity == b"", "as a gateway of before asks"


def places(policy: str, *, named: bool) -> dict[int, Counter[str]]:
    """Where 20 files' prompts went, ten of each and none like another."""
    core, dice = Core(fleet(replicas=REPLICAS, max_concurrency=64), policy), random.Random(7)
    found: dict[int, Counter[str]] = {}
    for number in range(200):
        file = number % 20
        fields = {"prefix_hashes": prompt(dice), "prefix_kind": "tokens", "prompt_tokens": 1_024}
        where = core.placed(f"l{number}", affinity=b"file %d" % file if named else b"", **fields)
        core.over(f"l{number}", 1_024)
        found.setdefault(file, Counter())[where] += 1
    return found


@pytest.mark.parametrize("policy", ["prefix", "consistent_hash"])
def test_a_files_requests_stay_together_though_their_prompts_have_nothing_in_common(policy: str) -> None:
    together = places(policy, named=True)
    assert all(len(seen) == 1 for seen in together.values())
    assert len({next(iter(seen)) for seen in together.values()}) > 1, "the files are spread"
    assert all(len(seen) > 1 for seen in places(policy, named=False).values()), "without a name they wander"


def test_its_place_is_left_while_its_replica_is_full() -> None:
    core = Core(fleet(replicas=REPLICAS, max_concurrency=2))
    where = [core.placed(f"l{number}", affinity=b"file") for number in range(8)]
    assert Counter(where) == dict.fromkeys(REPLICAS, 2)


def test_work_that_nobody_waits_for_goes_to_its_idle_replica_only() -> None:
    core = Core(fleet(replicas=REPLICAS))
    assert core.placed("warm", idle_replica="r3", affinity=b"elsewhere") == "r3"
    (no,) = refused(core.ask("second", idle_replica="r3"))
    assert (no.lease_id, no.cause, no.retry_after_s) == ("second", Reason.NOT_IDLE, None)
    core.over("warm")
    busy = core.placed("a")
    assert refused(core.ask("third", idle_replica=busy))
    other = next(one for one in REPLICAS if one != busy)
    assert core.placed("fourth", idle_replica=other) == other
    assert refused(core.ask("fifth", idle_replica="gone"))


def test_it_gives_way_to_those_who_wait() -> None:
    core = Core(fleet(replicas=("r1", "r2"), max_concurrency=1, r2=0.0))
    core.placed("a")
    assert not core.ask("b"), "waits"
    core.polled("r2")
    assert refused(core.ask("warm", idle_replica="r2"))


def test_it_takes_no_place_from_those_who_wait() -> None:
    core = Core(fleet(replicas=("r1",), max_concurrency=1))
    core.placed("copy", idle_replica="r1")
    assert core.placed("real") == "r1"
    assert not core.ask("next"), "waits"
    core.over("copy")
    assert not core.ask("another"), "waits too: the copy's place was nobody's"


def test_it_goes_to_the_canarys_replica_whatever_the_share() -> None:
    pools = tuple(Pool(name, "sglang", (Replica(f"{name}1", "http://x"),)) for name in ("p", "c"))
    model = Model("m", Tier.CHAT, "p", 8_192, canary=Canary("c", 0.0, engine_model="m-new"))
    core = Core(DesiredState(1, (model,), pools), slos=())
    (granted,) = core.ask("copy", idle_replica="c1", pool="c")
    assert isinstance(granted, Granted)
    engine = granted.lease.engine
    assert (engine.replica_id, engine.pool, engine.model) == ("c1", "c", "m-new")
    assert core.placed("ahead", idle_replica="p1") == "p1"


def test_it_is_on_nobodys_account() -> None:
    core = Core(fleet(replicas=("r1", "r2")))
    pool = core.core.fleet.pools["pool"]
    core.placed("real", organization_id="o")
    core.over("real")
    tenant = pool.queue.tenant("o")

    def account() -> tuple[object, ...]:
        expected = pool.outputs.expected("m", "o", 1_000)
        return tenant.counter, expected, pool.pacing.debt_s, core.core.placer.sheds.asks.copy()

    before = account()
    core.placed("warm", organization_id="o", idle_replica="r1", prompt_tokens=2_000)
    assert pool.queue.held_tokens == 0
    assert refused(core.ask("no", organization_id="o", idle_replica="r1"))
    core.began("warm", 0.1)
    core.over("warm", 2_000, 1)
    assert account() == before
    assert core.core.placer.sheds.refusals.get("chat", 0) == 0


def test_what_it_computed_is_known_to_be_there() -> None:
    core, dice = Core(fleet(replicas=REPLICAS)), random.Random(3)
    fields = {"prefix_hashes": prompt(dice), "prefix_kind": "tokens", "prompt_tokens": 1_024}
    for replica in ("r2", "r4"):
        core.placed(f"warm-{replica}", idle_replica=replica, **fields)
        core.over(f"warm-{replica}", 1_024, 1)
        (next_one,) = core.ask(f"next-{replica}", **fields)
        assert isinstance(next_one, Granted)
        assert next_one.lease.engine.replica_id == replica
        core.over(f"next-{replica}", 1_024, cached=1_000)
        fields = {**fields, "prefix_hashes": prompt(dice)}


def test_who_has_more_than_its_share_stays_where_its_prompt_is_held_and_computes_it_nowhere_else() -> None:
    core, dice = (
        Core(fleet(replicas=("r1", "r2"), max_concurrency=64), slos=(SloClass(Tier.CHAT, 1 << 31, 30.0),)),
        random.Random(3),
    )
    core.learn(0.002, ("r1", "r2"))
    tokens = 4_096
    file = {"prefix_kind": "tokens", "prompt_tokens": tokens, "organization_id": "typist", "affinity": b"file"}
    hashes = prompt(dice, tokens)
    home = core.placed("first", prefix_hashes=hashes, **file)
    core.over("first", tokens)
    for number in range(4):
        assert core.placed(f"typed{number}", prefix_hashes=hashes, **file) == home
        core.began(f"typed{number}", 0.01, tokens - 1)
    # somebody else's cold prompt is computed there
    other = {"prefix_kind": "tokens", "prompt_tokens": tokens, "organization_id": "other", "affinity": b"file"}
    excluded = tuple({"r1", "r2"} - {home})
    assert core.placed("cold", prefix_hashes=prompt(dice, tokens), excluded_replicas=excluded, **other) == home
    pool = core.core.fleet.pools["pool"]
    assert pool.queue.over_share(pool.queue.tenant("typist"))
    assert core.placed("key", prefix_hashes=hashes, **file) == home
    # a prompt of its own that nobody holds goes behind nobody's
    assert core.placed("another file", prefix_hashes=prompt(dice, tokens), **{**file, "affinity": b"g"}) != home
