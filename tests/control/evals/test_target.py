"""What a run is sent to, by the fleet."""

from __future__ import annotations

import msgspec
import pytest

from contracts.desired_state import Canary, DesiredState, Model, Pool
from contracts.errors import InvalidField
from contracts.fill_in_the_middle import FillInTheMiddle
from contracts.generation import Tier
from control.evals.target import Target, target_of, version_of

STATE = DesiredState(
    1,
    (
        Model("m", Tier.CHAT, "old", 4_096, engine_model="theirs", canary=Canary("new", 0.1, "newer")),
        Model("code", Tier.AUTOCOMPLETE, "old", 4_096),
    ),
    (
        Pool("old", "sglang", ()),
        Pool("new", "sglang", ()),
        Pool("prompts", "sglang", (), role="prefill"),
    ),
)


@pytest.mark.parametrize(
    ("pool", "target"),
    [
        (None, Target("m", "old", "theirs")),
        ("old", Target("m", "old", "theirs")),
        ("new", Target("m", "new", "newer")),
    ],
)
def test_a_pools_engines_have_a_name_of_their_own_for_the_model(pool: str | None, target: Target) -> None:
    assert target_of(STATE, "m", pool) == target


@pytest.mark.parametrize(
    ("model", "pool", "param", "said"),
    [
        ("gone", None, "model", "There is no model 'gone'; models: m, code."),
        ("m", "gone", "candidate_pool", "There is no pool 'gone'; pools: old, new, prompts."),
        ("m", "prompts", "candidate_pool", "computes prompts for other pools and serves no clients"),
    ],
)
def test_what_cannot_be_asked_is_refused_by_its_field(model: str, pool: str | None, param: str, said: str) -> None:
    with pytest.raises(InvalidField, match=said) as refused:
        target_of(STATE, model, pool, "candidate_pool")
    assert refused.value.param == param


def test_a_version_has_the_models_own_settings_that_shape_answers() -> None:
    plain = {"pool": "old", "engine_model": "theirs", "driver": "sglang"}
    assert version_of(STATE, target_of(STATE, "m", None), {}) == plain
    model = msgspec.structs.replace(
        STATE.models[0], chat_template_kwargs={"enable_thinking": False}, fim=FillInTheMiddle(lines="single")
    )
    changed = msgspec.structs.replace(STATE, models=(model,))
    assert version_of(changed, target_of(changed, "m", None), {}) == plain | {
        "chat_template_kwargs": '{"enable_thinking":false}',
        "fim": '{"lines":"single"}',
    }
