"""Which driver an engine is driven with, and what a model's requests may rely upon."""

from __future__ import annotations

import difflib
import logging
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest

from contracts.adapter import Adapter
from contracts.cascade import Cascade
from contracts.desired_state import Canary, DesiredState, Model, Pool
from contracts.errors import ConfigError, ModelForbidden, ModelNotFound
from contracts.fill_in_the_middle import FillInTheMiddle
from contracts.generation import Caller, Tier
from contracts.lease import Engine
from contracts.pooling import Task
from engines.drivers import registry as drivers
from engines.drivers.base import Capabilities, strictest
from gateway.auth.key_record import KeyRecord
from gateway.limits.levels import Levels
from gateway.serving.model_catalog import ModelCatalog
from tests.gateway.wire.openai.preparing import MODELS


@pytest.fixture
async def catalog() -> AsyncIterator[ModelCatalog]:
    made = ModelCatalog()
    yield made
    made.close()


def state(*pools: Pool, **model: Any) -> DesiredState:
    return DesiredState(1, (Model("m", Tier.CHAT, pools[0].name, 4_096, **model),), pools)


def everything(_: Model) -> bool:
    return True


def engine(driver: str, pool: str) -> Engine:
    return Engine("r", "http://127.0.0.1:1", driver, "m", pool)


async def test_an_engine_is_driven_with_its_pools_options(catalog: ModelCatalog) -> None:
    await catalog.load(
        state(Pool("told", "openai", continuous_usage_stats=True, cache_salt=True), Pool("plain", "openai"))
    )

    def options(pool: str) -> tuple[bool, bool]:
        found: Capabilities = catalog.driver(engine("openai", pool)).capabilities
        return found.running_count, found.salted_cache

    assert options("told") == (True, True)
    assert options("plain") == options("gone") == options("") == (False, False)
    # the router may know a version in which the pool has another driver
    assert catalog.driver(engine("sglang", "told")) is drivers.get("sglang")
    with pytest.raises(ConfigError, match="no driver named"):
        catalog.driver(engine("triton", "told"))


async def test_what_a_model_is_relied_on_for_its_control_pool_can_do_too(catalog: ModelCatalog) -> None:
    pools = [Pool(name, "openai", cache_salt=name != "control") for name in ("own", "new", "control")]
    await catalog.load(state(*pools, canary=Canary("new", 0.1, control=True, control_pool="control")))
    assert not catalog.find("m", everything).capabilities.salted_cache
    with pytest.raises(ConfigError, match=r"canary\.control_pool: no pool named 'gone'"):
        await catalog.load(state(*pools, canary=Canary("new", 0.1, control=True, control_pool="gone")))


@pytest.mark.parametrize(
    ("own", "canary", "fields", "healing"),
    [
        ("embedded", "embedded", {}, "word"),
        ("sglang", "vllm", {}, "tokens"),
        ("embedded", "vllm", {}, "tokens"),
        ("vllm", "openai", {}, None),
        ("llama_cpp", "llama_cpp", {}, None),
        ("sglang", "sglang", {"fim": FillInTheMiddle(healing=False)}, None),
        ("sglang", "sglang", {"tokenizer": str(MODELS / "slipstream-chat")}, None),
        ("sglang", "sglang", {"tokenizer": None}, None),
    ],
)
async def test_a_model_says_how_its_gaps_are_healed(
    catalog: ModelCatalog, own: str, canary: str, fields: dict[str, Any], healing: str | None
) -> None:
    """`slipstream usage autocomplete fit` heals in the same way."""
    code = {"tokenizer": str(MODELS / "slipstream-code"), "canary": Canary("new", 0.5), **fields}
    await catalog.load(state(Pool("own", own), Pool("new", canary), **code))
    assert catalog.healing(catalog.models[0]) == healing


@pytest.mark.parametrize("canary", drivers.names())
@pytest.mark.parametrize("own", drivers.names())
async def test_a_request_is_prepared_for_its_canary_too(catalog: ModelCatalog, own: str, canary: str) -> None:
    await catalog.load(state(Pool("own", own), Pool("new", canary), canary=Canary("new", 0.5)))
    one, other = drivers.get(own).capabilities, drivers.get(canary).capabilities
    assert catalog.find("m", everything).capabilities == strictest(one, other)
    # the control tokens of a text are looked for if either engine would take them for real
    assert catalog.find("m", everything).capabilities.literal_text == (one.literal_text and other.literal_text)


async def test_pools_that_may_share_caches_are_named(catalog: ModelCatalog, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        await catalog.load(
            state(Pool("own", "sglang"), Pool("salted", "openai", cache_salt=True), Pool("bare", "openai"))
        )
    [said] = caplog.messages
    assert said.startswith("pools.bare: ")
    assert "cache_salt = true" in said
    with caplog.at_level(logging.WARNING):
        await catalog.load(state(Pool("own", "sglang"), Pool("bare", "openai")))
    assert caplog.messages == [said], "once, however often a state is loaded"


async def test_a_pool_with_an_unknown_driver_leaves_the_version_before(catalog: ModelCatalog) -> None:
    await catalog.load(state(Pool("own", "sglang")))
    with pytest.raises(ConfigError, match="did you mean 'sglang'"):
        await catalog.load(state(Pool("own", "sglang"), Pool("unused", "sglnag")))
    assert catalog.driver(engine("sglang", "own")) is drivers.get("sglang")


async def test_a_model_that_is_not_there_is_answered_with_those_that_may_be_used(catalog: ModelCatalog) -> None:
    named = [Model(name, Tier.CHAT, "own", 4_096) for name in ("llama-70b", "llama-8b", "secret-70b")]
    await catalog.load(DesiredState(1, tuple(named), (Pool("own", "sglang", max_adapters=4),)))
    with pytest.raises(ModelNotFound) as missing:
        catalog.find("llama-70", lambda model: model.name != "secret-70b")
    assert missing.value.message == (
        "The model 'llama-70' does not exist. Did you mean 'llama-70b'? Available: llama-70b, llama-8b."
    )
    with pytest.raises(ModelNotFound, match=r"does not exist\. Available: none yet\.$"):
        catalog.find("llama-70", lambda _: False)
    with pytest.raises(
        ModelNotFound, match=r"\. Did you mean 'llama-70b'\? Available: llama-70b, llama-8b, secret-70b"
    ):
        catalog.find("llama-70", everything, tier=Tier.AUTOCOMPLETE)  # there is none


async def test_a_model_that_is_not_there_is_answered_with_those_of_the_endpoints_kind(catalog: ModelCatalog) -> None:
    models = (
        Model("gemma-code", Tier.AUTOCOMPLETE, "own", 4_096),
        Model("gemma-chat", Tier.CHAT, "own", 4_096),
        Model("gemma-cubes", Tier.CHAT, "own", 4_096, task=Task.EMBEDDING),
    )
    await catalog.load(DesiredState(1, models, (Pool("own", "sglang", max_adapters=4),)))
    for task, tier, only in (
        (Task.TEXT, Tier.CHAT, "gemma-chat"),
        (Task.TEXT, Tier.AUTOCOMPLETE, "gemma-code"),
        (Task.EMBEDDING, None, "gemma-cubes"),
    ):
        with pytest.raises(ModelNotFound, match=rf"Did you mean '{only}'\? Available: {only}\.$"):
            catalog.find("gemma-c", everything, (), task, tier)
    with pytest.raises(ModelNotFound, match=r"does not exist\. Available: none for this endpoint yet\.$"):
        catalog.find("gemma-c", everything, (), Task.RERANK)


async def test_a_name_of_any_length_is_compared_and_repeated_in_part(
    catalog: ModelCatalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A URL may hold 64 kB of it."""
    compared: list[str] = []

    def nothing_near(name: str, *_: object) -> list[str]:
        compared.append(name)
        return []

    monkeypatch.setattr(difflib, "get_close_matches", nothing_near)
    await catalog.load(state(Pool("own", "sglang")))
    with pytest.raises(ModelNotFound) as missing:
        catalog.find("m" * 58_000, everything)
    [name] = compared
    assert len(name) <= 256
    assert missing.value.message == f"The model '{name}' does not exist. Available: m."


def test_a_model_that_may_not_be_used_is_refused_by_the_name_asked_for() -> None:
    """What stands behind an alias is nobody's business who may not use it."""
    secret = Model("secret-70b", Tier.CHAT, "own", 4_096, aliases=("smart",))
    open_to_all = Model("open", Tier.AUTOCOMPLETE, "own", 4_096)
    for key in (
        KeyRecord(Caller("org", "project", "key"), Levels(), models=frozenset({"open"})),
        KeyRecord(Caller("org", "project", "key"), Levels(), tiers=frozenset({Tier.AUTOCOMPLETE})),
    ):
        with pytest.raises(ModelForbidden) as refused:
            key.require_model(secret, "smart", (secret, open_to_all))
        assert "model 'smart'" in refused.value.message
        assert refused.value.message.endswith("It may use: open.")
        assert "secret" not in refused.value.message
        key.require_model(open_to_all, "open", ())


async def test_chat_models_are_those_with_a_template_or_of_the_tier(catalog: ModelCatalog) -> None:
    models = (
        Model("talks", Tier.AUTOCOMPLETE, "own", 4_096, tokenizer="models/slipstream-chat"),
        Model("types", Tier.CHAT, "own", 4_096, tokenizer="models/slipstream-code"),
        Model("unknown", Tier.CHAT, "own", 4_096),
        Model("unknown-too", Tier.AUTOCOMPLETE, "own", 4_096),
    )
    await catalog.load(DesiredState(1, models, (Pool("own", "sglang"),)))
    assert catalog.names(everything, chat=True) == ["talks", "unknown"]
    assert catalog.names(lambda model: model.name == "types", chat=True) == []


async def test_a_client_that_knows_no_models_gets_the_first_of_its_autocomplete_tier(catalog: ModelCatalog) -> None:
    models = [Model(name, tier, "p", 4_096) for name, tier in (("c", Tier.CHAT), ("a", Tier.AUTOCOMPLETE))]
    models.append(Model("b", Tier.AUTOCOMPLETE, "p", 4_096))
    await catalog.load(DesiredState(1, tuple(models), (Pool("p", "sglang"),)))
    assert catalog.find("", everything).model.name == "a"
    assert catalog.find("", lambda model: model.name != "a").model.name == "b"
    with pytest.raises(ModelNotFound, match=r"No model of the autocomplete tier .* Available: c\.") as caught:
        catalog.find("", lambda model: model.name == "c")
    assert caught.value.param == "model"


NAMES_WITH_COLONS = {"llama": ("smart",), "llama:70b": (), "q:8b": ()}


async def test_an_adapter_is_found_by_its_owner_only_and_a_models_own_name_goes_before(catalog: ModelCatalog) -> None:
    named = [Model(name, Tier.CHAT, "own", 4_096, aliases=aliases) for name, aliases in NAMES_WITH_COLONS.items()]
    await catalog.load(DesiredState(1, tuple(named), (Pool("own", "sglang", max_adapters=4),)))
    own = (Adapter("1", "support", "llama", "/a"), Adapter("2", "70b", "llama", "/b"), Adapter("3", "x", "q:8b", "/c"))
    for asked, found in (
        ("llama:support", own[0]),
        ("smart:support", own[0]),  # by an alias of its model
        ("llama:70b", None),
        ("q:8b", None),
        ("q:8b:x", own[2]),
        ("llama", None),
    ):
        assert catalog.find(asked, everything, own).adapter == found, asked
    refusals = []
    for adapters in ((), (Adapter("4", "billing", "llama", "/d"),)):
        with pytest.raises(ModelNotFound) as missing:
            catalog.find("llama:support", everything, adapters)
        refusals.append(missing.value.message)
    assert len(set(refusals)) == 1


async def test_an_adapter_of_a_model_whose_engines_take_none_is_not_found_and_says_why(catalog: ModelCatalog) -> None:
    own = (Adapter("1", "support", "llama", "/a"),)
    model = Model("llama", Tier.CHAT, "own", 4_096)
    split = msgspec.structs.replace(model, canary=Canary("new", 0.1))
    takes, none = Pool("new", "sglang", max_adapters=4), Pool("own", "sglang")
    await catalog.load(DesiredState(1, (model,), (none, takes)))
    with pytest.raises(
        ModelNotFound, match="'llama:support' cannot be used, because the engines of 'llama' do not support adapters"
    ):
        catalog.find("llama:support", everything, own)
    with pytest.raises(ModelNotFound, match="does not exist"):
        catalog.find("llama:support", everything, ())
    await catalog.load(DesiredState(2, (split,), (none, takes)))
    assert catalog.find("llama:support", everything, own).adapter == own[0]


async def test_an_adapter_goes_past_its_models_cascade(catalog: ModelCatalog) -> None:
    small = Model("small", Tier.CHAT, "own", 4_096)
    large = Model("large", Tier.CHAT, "own", 4_096, cascade=Cascade("small"))
    await catalog.load(DesiredState(1, (small, large), (Pool("own", "sglang", max_adapters=4),)))
    own = (Adapter("1", "support", "large", "/a"),)
    assert catalog.first_of(catalog.find("large", everything)) is not None
    assert catalog.first_of(catalog.find("large:support", everything, own)) is None


async def test_a_pool_whose_dialect_loads_no_adapters_cannot_be_told_to(catalog: ModelCatalog) -> None:
    with pytest.raises(ConfigError, match=r"pools\.own\.max_adapters: 4; the driver openai loads no adapters"):
        await catalog.load(state(Pool("own", "openai", max_adapters=4)))
    await catalog.load(state(Pool("own", "embedded", max_adapters=4)))


async def test_a_model_is_known_since_it_was_first_loaded(
    catalog: ModelCatalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    pool = Pool("own", "sglang")
    one, other = (Model(name, Tier.CHAT, "own", 4_096) for name in ("one", "other"))
    for now_s, models in ((1_000.9, (one,)), (2_000.0, (one, other)), (3_000.0, (other,)), (4_000.0, (one, other))):
        monkeypatch.setattr("gateway.serving.model_catalog.time.time", lambda now_s=now_s: now_s)
        await catalog.load(DesiredState(1, models, (pool,)))
    assert catalog.known_since == {"one": 4_000, "other": 2_000}
