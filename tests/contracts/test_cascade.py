"""What a cascade may be made of, and what its approval is of."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from contracts.cascade import Approval, Cascade
from contracts.cascade_digest import approved, measured
from contracts.desired_state import DesiredState, Model, Pool
from contracts.errors import ConfigError
from contracts.generation import Tier

LARGE = Model("large", Tier.CHAT, "one", 4_096, cascade=Cascade("small"))
SMALL = Model("small", Tier.CHAT, "two", 4_096, aliases=("tiny",))
FILLS = Model("fills", Tier.AUTOCOMPLETE, "two", 4_096)


def state(*models: Model) -> DesiredState:
    return DesiredState(1, models, (Pool("one", "sglang"), Pool("two", "sglang")))


@pytest.mark.parametrize(
    ("models", "said"),
    [
        ((replace(LARGE, cascade=Cascade("none")), SMALL), "'none' is not the name of another model; models: small"),
        ((replace(LARGE, cascade=Cascade("tiny")), SMALL), "'tiny' is not the name of another model; models: small"),
        ((replace(LARGE, cascade=Cascade("large")), SMALL), "'large' is not the name of another model; models: small"),
        ((replace(LARGE, cascade=Cascade("fills")), FILLS), "must have the tier 'chat'"),
        ((replace(FILLS, cascade=Cascade("small")), SMALL), "must have the tier 'chat'"),
        ((LARGE, replace(SMALL, cascade=Cascade("large"))), "'small' has a cascade itself"),
    ],
)
def test_what_cannot_be_is_refused_by_name(models: tuple[Model, ...], said: str) -> None:
    with pytest.raises(ConfigError, match=r"models\.\w+\.cascade\.first") as refused:
        state(*models).check()
    assert said in refused.value.message


def test_nothing_is_approved_until_it_is_and_only_as_it_was() -> None:
    before = state(LARGE, SMALL)
    before.check()
    assert not approved(before, LARGE)
    cascade = Cascade("small", approval=Approval("c", measured(before, LARGE)))
    large = replace(LARGE, cascade=cascade)
    assert approved(state(large, SMALL), large)
    assert not approved(state(large, replace(SMALL, engine_model="other")), large)
    assert not approved(state(replace(large, pool="two"), SMALL), replace(large, pool="two"))
