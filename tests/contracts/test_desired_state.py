"""A fleet that contradicts itself is refused by its field."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from contracts.desired_state import DesiredState, Model, Pool, Replica
from contracts.errors import ConfigError
from contracts.generation import Tier

EVENTS = "tcp://10.1.0.10:5557"


def state(*replicas: Replica) -> DesiredState:
    """Each in a pool of its own."""
    return DesiredState(1, (), tuple(Pool(f"p{at}", "sglang", (one,)) for at, one in enumerate(replicas)))


def test_two_engines_cannot_tell_their_kv_events_in_one_place() -> None:
    one, other = (Replica(f"r{at}", f"http://10.1.0.{at}:30000", kv_events=EVENTS) for at in range(2))
    told = (
        r"pools\.p1\.replicas\.r1\.kv_events: tcp://10\.1\.0\.10:5557 is already the endpoint of the KV events of "
        r"engine http://10\.1\.0\.0:30000"
    )
    with pytest.raises(ConfigError, match=told):
        state(one, other).check()


def test_one_engine_in_two_pools_and_engines_that_tell_none_may() -> None:
    same = (Replica(f"r{at}", "http://10.1.0.1:30000", kv_events=EVENTS) for at in range(2))
    silent = (Replica(f"s{at}", f"http://10.1.0.{at}:30000") for at in range(2))
    state(*same, *silent).check()


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("priority", "may be set only by the gateway"),
        ("cache_salt", "may be set only by the gateway"),
        ("bootstrap_room", "may be set only by the gateway"),
        ("return_hidden_states", "may be set only by the gateway"),
        ("max_new_tokens", "may be set only by the gateway"),
        ("a b", "a name consists of up to 64 letters, digits and _"),
        ("", "a name consists of up to 64 letters, digits and _"),
    ],
)
def test_a_pool_passes_no_parameter_that_is_the_gateways(name: str, said: str) -> None:
    state = DesiredState(1, pools=(Pool("p", "openai", engine_parameters=("typical_p", name)),))
    with pytest.raises(ConfigError, match=said) as refused:
        state.check()
    assert refused.value.param == "pools.p.engine_parameters"


def test_both_sides_of_a_split_pass_the_same_parameters() -> None:
    prefill = Pool("fill", "sglang", role="prefill", engine_parameters=("regex",))
    decode = Pool("answer", "sglang", role="decode", prefill_pool="fill")
    with pytest.raises(ConfigError, match="'regex' is in the list of only one of 'answer' and 'fill'"):
        DesiredState(1, pools=(prefill, decode)).check()
    both = msgspec.structs.replace(decode, engine_parameters=("regex",))
    DesiredState(1, pools=(prefill, both)).check()
    whole = Pool("whole", "sglang", split_pool="answer")
    with pytest.raises(ConfigError, match=r"pools\.answer\.engine_parameters: 'regex'"):
        DesiredState(1, pools=(prefill, both, whole)).check()


@pytest.mark.parametrize("variables", [{"messages": "x"}, {"bos_token": "x"}, {"a b": True}])
def test_a_models_template_is_given_its_own_variables_alone(variables: Any) -> None:
    model = Model("m", Tier.CHAT, "p", 100, chat_template_kwargs=variables)
    with pytest.raises(ConfigError) as refused:
        DesiredState(1, models=(model,), pools=(Pool("p", "vllm"),)).check()
    assert refused.value.param == "models.m.chat_template_kwargs"
