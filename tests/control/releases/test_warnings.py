"""What is allowed of a release and told to whoever starts it."""

from __future__ import annotations

import msgspec

from contracts.desired_state import DesiredState
from control.releases.warnings import warnings_of
from tests.control.releases.fleets import FLEET, release


def fleet(**drivers: str) -> DesiredState:
    """drivers: of pools, by name."""
    pools = (
        msgspec.structs.replace(pool, driver=drivers[pool.name]) if pool.name in drivers else pool
        for pool in FLEET.pools
    )
    return msgspec.structs.replace(FLEET, pools=tuple(pools))


def without_adapters(state: DesiredState, name: str) -> DesiredState:
    pools = (msgspec.structs.replace(each, max_adapters=0) if each.name == name else each for each in state.pools)
    return msgspec.structs.replace(state, pools=tuple(pools))


def test_the_same_engines_are_nothing_to_tell() -> None:
    assert warnings_of(FLEET, release(control_pool="fresh")) == []


def test_a_candidate_on_other_engines_is_told_with_both_kinds_and_what_to_do() -> None:
    [told] = warnings_of(fleet(new="vllm"), release())
    assert "(new: vllm) than the baseline's (old: sglang)" in told
    assert "release the version that is served now on the new engines first" in told


def test_what_customers_lose_by_the_other_engines_is_named() -> None:
    told = warnings_of(fleet(old="embedded", new="openai"), release())
    assert "texts that hold a special token are refused; 'min_tokens' is refused" in told[1]
    assert not any("special token" in each for each in warnings_of(fleet(old="openai", new="embedded"), release()))


def test_a_candidate_that_takes_no_adapters_is_told_where_the_baseline_does() -> None:
    [told] = warnings_of(without_adapters(FLEET, "new"), release())
    assert "pools.new.max_adapters is 0, and that of old is 4" in told
    assert warnings_of(without_adapters(FLEET, "old"), release()) == []


def test_a_control_arm_on_other_engines_is_told() -> None:
    [told] = warnings_of(fleet(fresh="vllm"), release(control_pool="fresh"))
    assert told.startswith("The control arm's engines are of another kind (fresh: vllm)")


def test_of_a_pool_that_is_gone_nothing_is_said() -> None:
    gone = msgspec.structs.replace(FLEET, pools=FLEET.pools[:1])
    assert warnings_of(gone, release()) == []
