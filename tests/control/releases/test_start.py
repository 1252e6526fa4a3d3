"""What no release can be made of is refused by the field that is wrong."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from contracts.desired_state import Canary, DesiredState, Model, Pool, Replica
from contracts.errors import Conflict, InvalidField
from contracts.generation import Tier
from contracts.pooling import Task
from control.releases.margins import Margins
from control.releases.start import Wanted, require_startable
from tests.control.releases.fleets import FLEET, STAGES


def wanted(**changed: Any) -> Wanted:
    plain: dict[str, Any] = {
        "model": "m", "candidate_pool": "new", "engine_model": None, "control_pool": "", "stages": STAGES,
        "margins": Margins(),
    }  # fmt: skip
    return Wanted(**{**plain, **changed})


def with_pools(*pools: Pool) -> DesiredState:
    names = {pool.name for pool in pools}
    return msgspec.structs.replace(FLEET, pools=(*(each for each in FLEET.pools if each.name not in names), *pools))


def test_every_stage_with_customers_has_a_least_exposure() -> None:
    for stages, least in (
        (STAGES, [200, 500, 1_000]),
        ((0.05, 1.0), [1_000]),
        ((0.0, 0.01, 0.02, 0.1, 0.3, 1.0), [200, 200, 500, 1_000]),
    ):
        model, margins = require_startable(FLEET, wanted(stages=stages))
        assert (model.name, margins.least_units) == ("m", least)
    _, margins = require_startable(FLEET, wanted(margins=Margins(least_units=[1, 2, 3])))
    assert margins.least_units == [1, 2, 3]


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"model": "alias"}, "'alias' is an alias of the model"),
        ({"candidate_pool": "gone"}, "no pool 'gone'"),
        ({"candidate_pool": "old"}, "needs its own pool"),
        ({"control_pool": "new"}, "cannot run on the candidate's pool"),
        ({"control_pool": "gone"}, "no pool 'gone'"),
        ({"stages": (0.0, 1.0)}, "stages"),
        ({"stages": (0.05, 0.01, 1.0)}, "stages"),
        ({"stages": (0.01, 0.6, 1.0)}, "stages"),
        ({"stages": (0.01, 0.25)}, "stages"),
        ({"margins": Margins(least_units=[5])}, "1 of 3"),
        ({"margins": Margins(quantiles=[0.9, 0.5])}, "'quantiles': 0.9, 0.5. Give them in ascending order"),
        ({"margins": Margins(quantiles=[0.5, 0.9], promoted_quantile=0.99)}, "'promoted_quantile': 0.99. It is one of"),
        ({"margins": Margins(promoted_quantile=0.9996, quantiles=[0.9, 0.9996])}, "0.9996. Give one .* up to 0.9995"),
        ({"margins": Margins(quantiles=[0.5, 0.9999])}, "'promoted_quantile': 0.9999. Give one .* up to 0.9995"),
    ],
)
def test_what_cannot_be_is_refused_by_name(changed: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidField, match=said):
        require_startable(FLEET, wanted(**changed))


def test_a_model_that_is_split_already_is_not_split_again() -> None:
    model = msgspec.structs.replace(FLEET.models[0], canary=Canary("fresh", 0.1))
    with pytest.raises(Conflict, match="10 % of its sessions"):
        require_startable(msgspec.structs.replace(FLEET, models=(model,)), wanted())
    copied = msgspec.structs.replace(model, canary=Canary("fresh", 0.0, shadow_share=0.1, release="r1"))
    with pytest.raises(Conflict, match="has requests copied to the pool 'fresh'; roll back its release r1 first"):
        require_startable(msgspec.structs.replace(FLEET, models=(copied,)), wanted())


def test_a_control_arm_among_engines_that_share_their_cache_is_refused_and_fresh_replicas_are_not() -> None:
    bare = msgspec.structs.replace(FLEET.pools[0], driver="openai")
    with pytest.raises(InvalidField, match="fresh replicas"):
        require_startable(with_pools(bare), wanted())
    require_startable(with_pools(bare), wanted(control_pool="fresh"))
    require_startable(with_pools(msgspec.structs.replace(bare, cache_salt=True)), wanted())


@pytest.mark.parametrize("arm", ["candidate_pool", "control_pool"])
def test_an_arm_too_small_for_the_model_is_refused(arm: str) -> None:
    """A replica that is drained takes no request, however long its context is."""
    small = Pool(
        "small",
        "sglang",
        (
            Replica("small-0", "http://small", context_tokens=1_024),
            Replica("small-1", "http://small-1", context_tokens=512),
            Replica("drained", "http://drained", weight=0),
        ),
    )
    with pytest.raises(
        InvalidField, match=r"accept at most 1,024 tokens \('small-0'\).* 4,096: 3,072 too few"
    ) as refused:
        require_startable(with_pools(small), wanted(**{arm: "small"}))
    assert refused.value.param == arm
    enough = Replica("small-2", "http://small-2", context_tokens=4_096)
    large = msgspec.structs.replace(small, replicas=(*small.replicas, enough))
    require_startable(with_pools(large), wanted(**{arm: "small"}))


@pytest.mark.parametrize("arm", ["candidate_pool", "control_pool"])
def test_an_arm_that_shares_caches_between_tenants_or_cannot_fill_gaps_is_refused(arm: str) -> None:
    plain = Pool("plain", "openai", (Replica("plain-0", "http://plain"),))
    with pytest.raises(InvalidField, match="share prefix caches") as refused:
        require_startable(with_pools(plain), wanted(**{arm: "plain"}))
    assert refused.value.param == arm
    salted = with_pools(msgspec.structs.replace(plain, cache_salt=True))
    require_startable(salted, wanted(**{arm: "plain"}))
    model = msgspec.structs.replace(FLEET.models[0], tier=Tier.AUTOCOMPLETE)
    with pytest.raises(InvalidField, match="'suffix' may be refused"):
        require_startable(msgspec.structs.replace(salted, models=(model,)), wanted(**{arm: "plain"}))


@pytest.mark.parametrize("arm", ["candidate_pool", "control_pool"])
def test_a_pool_that_serves_only_another_tier_is_refused(arm: str) -> None:
    def serving(*tiers: Tier) -> DesiredState:
        others = tuple(Model(f"code-{at}", tier, "code", 4_096) for at, tier in enumerate(tiers))
        state = with_pools(Pool("code", "sglang", (Replica("code-0", "http://code"),)))
        return msgspec.structs.replace(state, models=(*FLEET.models, *others))

    said = r"'code-0' \(tier autocomplete\), and 'm' has the tier chat\. .*`slipstream fleet pools set"
    with pytest.raises(InvalidField, match=said) as refused:
        require_startable(serving(Tier.AUTOCOMPLETE), wanted(**{arm: "code"}))
    assert refused.value.param == arm
    for tiers in ((), (Tier.AUTOCOMPLETE, Tier.CHAT)):
        require_startable(serving(*tiers), wanted(**{arm: "code"}))


def test_a_candidate_without_replicas_is_refused() -> None:
    with pytest.raises(InvalidField, match="no replica that takes load"):
        require_startable(with_pools(Pool("new", "sglang")), wanted())


def test_a_model_whose_sessions_cannot_be_split_is_refused() -> None:
    """No fleet may split it, so that its release would wait forever."""
    model = msgspec.structs.replace(FLEET.models[0], task=Task.EMBEDDING)
    with pytest.raises(InvalidField, match="'m' has the task 'embedding'") as refused:
        require_startable(msgspec.structs.replace(FLEET, models=(model,)), wanted())
    assert refused.value.param == "model"


@pytest.mark.parametrize("arm", ["candidate_pool", "control_pool"])
def test_a_pool_that_only_computes_prompts_is_refused(arm: str) -> None:
    prefill = Pool("prefill", "sglang", (Replica("prefill-0", "http://p", bootstrap_port=8998),), role="prefill")
    with pytest.raises(InvalidField, match="'prefill' computes prompts for other pools") as refused:
        require_startable(with_pools(prefill), wanted(**{arm: "prefill"}))
    assert refused.value.param == arm
