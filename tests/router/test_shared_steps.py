"""Engines that compute short prompts beside a long one: what the router takes to be in front of an ask."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from contracts.generation import Tier
from engines.drivers import registry as drivers
from engines.drivers.base import Load
from engines.drivers.embedded import EmbeddedDriver
from engines.embedded.config import SchedulerConfig
from engines.embedded.scheduler import SHARE_BEHIND
from router.config import SloClass
from tests.examples import examples
from tests.router.core_driver import Core, granted
from tests.router.fakes import fleet

STEP = 512
SLOS = (SloClass(Tier.CHAT, 4_096, 0.7, 0.0), SloClass(Tier.CHAT, 1 << 31, 15.0, 0.0))
SHARED: dict[str, Any] = {"step_tokens": STEP, "share_behind": 0.25}
prompts = st.one_of(st.integers(1, 400), st.integers(1, 8_000))


def computed_meanwhile(oldest: int, behind: list[int], own: int) -> int:
    """Plain reference, a step at a time: tokens of others computed until the last of `own` is."""
    left = [oldest, *behind, own]
    others = 0
    while left[-1]:
        budget, before = STEP, sum(left[:-1])
        first = next(at for at, tokens in enumerate(left) if tokens)
        taken = min(left[first], STEP - STEP // SHARE_BEHIND if first < len(left) - 1 else STEP)
        left[first] -= taken
        budget -= taken
        for at in sorted(range(first + 1, len(left)), key=left.__getitem__):
            taken = min(left[at], budget)
            left[at] -= taken
            budget -= taken
        left[first] -= min(left[first], budget)
        others += before - sum(left[:-1])
    return others


@examples(nightly=60)
@given(prompts, st.lists(prompts, max_size=4), prompts)
def test_what_is_taken_to_be_in_front_is_what_such_an_engine_computes_meanwhile(
    oldest: int, behind: list[int], own: int
) -> None:
    core = Core(fleet(replicas=("r1",), max_concurrency=100))
    core.learn(0.0001, rounds=5)
    core.polled(**SHARED)
    for tokens in (oldest, *behind):
        assume(granted(core.ask(prompt_tokens=tokens)))
    assume(granted(core.ask("own", prompt_tokens=own)))
    taken = core.core.fleet.replicas["r1"].live[("gateway", "own")].work_ahead_tokens
    true = computed_meanwhile(oldest, behind, own)
    # a step is not begun in the middle, and prompts longer than `own` shrink below it while it waits
    assert true <= taken + STEP or any(tokens > own for tokens in behind)
    if oldest > SHARE_BEHIND * (sum(behind) + own) + STEP:  # it is there all the time, and takes all it may
        assert abs(taken - true) <= 2 * STEP


@pytest.mark.parametrize(("load", "at_once"), [({}, False), (SHARED, True)])
def test_a_short_prompt_is_not_kept_from_an_engine_that_computes_it_beside_a_long_one(
    load: dict[str, Any], at_once: bool
) -> None:
    core = Core(fleet(replicas=("r1",), max_concurrency=100), slos=SLOS)
    core.learn(0.0001)
    core.polled(**load)
    core.placed("long", prompt_tokens=20_000)  # two seconds
    assert (granted(core.ask("short", prompt_tokens=20)) == ["short"]) is at_once


@pytest.mark.parametrize(("load", "where"), [({}, "other"), (SHARED, "holder")])
def test_a_files_next_key_stays_where_the_file_is_though_a_long_prompt_is_computed_there(
    load: dict[str, Any], where: str
) -> None:
    core = Core(fleet(replicas=("r1", "r2"), max_concurrency=100), slos=SLOS)
    core.learn(0.0001, ("r1", "r2"))
    held: dict[str, Any] = {
        "prompt_tokens": 4_096,
        "prefix_kind": "tokens",
        "prefix_hashes": b"".join(number.to_bytes(16) for number in range(1, 257)),
    }
    holder = core.served(4_096, 0.42, **{name: value for name, value in held.items() if name != "prompt_tokens"})
    for replica_id in ("r1", "r2"):
        core.polled(replica_id, **load)
    others = tuple(one for one in ("r1", "r2") if one != holder)
    core.placed("long", prompt_tokens=20_000, excluded_replicas=others)
    assert ("holder" if core.placed("key", **held) == holder else "other") == where


def test_the_embedded_engine_says_how_it_shares_its_steps_and_no_other_has_to() -> None:
    rank = {"num_running_reqs": 0, "num_waiting_reqs": 0}
    shared = msgspec.json.encode({"loads": [{**rank, "step_tokens": 512, "share_behind": 0.25}]})
    driver = EmbeddedDriver()
    assert driver.parse_load(shared) == Load(step_tokens=512, share_behind=0.25)
    assert driver.parse_load(msgspec.json.encode({"loads": [rank]})) == Load()
    assert drivers.get("sglang").parse_load(shared) == Load()
    assert SchedulerConfig().max_batch_tokens == STEP
