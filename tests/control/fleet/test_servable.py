"""An option that a pool's driver has not is refused, with the drivers that have it; which these are is said once. So
is a layout of gaps that engines or tokenizer have not the means for."""

from __future__ import annotations

import inspect
import re
from pathlib import Path
from typing import Any

import msgspec
import pytest

from contracts.desired_state import Model, Pool, Replica
from contracts.errors import ConfigError
from contracts.fill_in_the_middle import FillInTheMiddle
from contracts.generation import Tier
from control.fleet.servable import check_pool, check_served, check_tokenizer
from engines.drivers import registry
from gateway.desired.pool_options import DRIVER_OPTIONS

SHIPPED = Path(__file__).parents[3] / "models"

GIVEN: dict[str, Any] = {option.name: 4 if option.name == "max_adapters" else True for option in DRIVER_OPTIONS}


def pool_of(driver: str, **options: Any) -> Pool:
    return Pool("gpus", driver, (Replica("a", "http://10.0.0.5:30000"),), api_key_required=False, **options)


@pytest.mark.parametrize("option", DRIVER_OPTIONS, ids=lambda option: option.name)
@pytest.mark.parametrize("driver", registry.names())
def test_an_option_is_taken_by_the_drivers_that_have_it_alone(driver: str, option: Any) -> None:
    pool = pool_of(driver, **{option.name: GIVEN[option.name]})
    if driver in option.drivers:
        check_pool(pool)
        return
    with pytest.raises(ConfigError) as refused:
        check_pool(pool)
    assert refused.value.param == f"pools.gpus.{option.name}"
    said = f"pools.gpus.{option.name}: {str(GIVEN[option.name]).lower()}; the driver {driver} "
    assert refused.value.message.startswith(said)
    assert refused.value.message.endswith(f"(for driver {' or '.join(option.drivers)})")


def test_adapters_are_for_the_drivers_that_load_them() -> None:
    (adapters,) = (option for option in DRIVER_OPTIONS if option.name == "max_adapters")
    assert set(adapters.drivers) == {name for name in registry.names() if registry.get(name).capabilities.adapters}


def test_the_reference_says_the_same_drivers() -> None:
    # a docstring may be wrapped anywhere
    said = dict(re.findall(r'^    (\w+): [^\n]*\n    "{3}[^"]*Driver\s+`(\w+)`\s+only', inspect.getsource(Pool), re.M))
    assert said == {option.name: option.drivers[0] for option in DRIVER_OPTIONS if len(option.drivers) == 1}


def model_of(tokenizer: Path | None, typed_line: str = "after_middle") -> Model:
    fim = msgspec.convert({"typed_line": typed_line}, FillInTheMiddle)
    folder = None if tokenizer is None else str(tokenizer)
    return Model("coder", Tier.AUTOCOMPLETE, "gpus", 4_096, tokenizer=folder, fim=fim)


@pytest.mark.parametrize("driver", ["embedded", "sglang", "vllm", "openai"])
def test_the_half_typed_line_is_moved_for_engines_that_take_ids_alone(driver: str) -> None:
    check_served(model_of(SHIPPED / "slipstream-code", "before_middle"), pool_of(driver))
    if registry.get(driver).capabilities.token_prompts:
        check_served(model_of(SHIPPED / "slipstream-code"), pool_of(driver))
        return
    with pytest.raises(ConfigError) as refused:
        check_served(model_of(SHIPPED / "slipstream-code"), pool_of(driver))
    assert refused.value.param == "models.coder.fim.typed_line"
    assert "pools.gpus (driver openai) take no token ids" in refused.value.message


def test_the_half_typed_line_is_moved_by_a_tokenizer_with_a_middle_token_alone(tmp_path: Path) -> None:
    check_tokenizer(model_of(SHIPPED / "slipstream-code"))
    codestral = tmp_path / "codestral"
    codestral.mkdir()
    tokenizer = msgspec.json.decode((SHIPPED / "slipstream-code" / "tokenizer.json").read_bytes())
    for token, content in zip(tokenizer["added_tokens"][1:3], ("[PREFIX]", "[SUFFIX]"), strict=True):
        vocabulary = tokenizer["model"]["vocab"]
        vocabulary[content] = vocabulary.pop(token["content"], token["id"])
        token["content"] = content
    (codestral / "tokenizer.json").write_bytes(msgspec.json.encode(tokenizer))
    for folder, reason in (
        (None, "the model has no `tokenizer`"),
        (SHIPPED / "slipstream-chat", "has no fill-in-the-middle tokens"),
        (codestral, "has no middle token"),
    ):
        check_tokenizer(model_of(folder, "before_middle"))
        with pytest.raises(ConfigError) as refused:
            check_tokenizer(model_of(folder))
        assert refused.value.param == "models.coder.fim.typed_line"
        assert reason in refused.value.message
        assert refused.value.message.endswith("; write auto or before_middle")


@pytest.mark.parametrize("driver", registry.names())
def test_variables_of_a_template_are_for_engines_that_take_some(driver: str) -> None:
    model = Model("m", Tier.CHAT, "gpus", 4_096, chat_template_kwargs={"enable_thinking": False})
    check_served(model, pool_of(driver, engine_parameters=("chat_template_kwargs",)))
    if driver != "openai":
        check_served(model, pool_of(driver))
        return
    with pytest.raises(ConfigError, match=r"add 'chat_template_kwargs' to pools\.gpus\.engine_parameters") as refused:
        check_served(model, pool_of(driver))
    assert refused.value.param == "models.m.chat_template_kwargs"
