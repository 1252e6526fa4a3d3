"""The engines that `up` starts: each pool's by its own settings, each engine at ports of its own; and what cannot be is
refused with the arithmetic."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import Any

import msgspec
import pytest

from contracts.errors import ConfigError
from engines.layers.native.compiling import COMPILING
from infra.local.ports import Ports
from slipstream import local_engine_check, local_engines
from slipstream.machine import Machine
from slipstream.model_folder import SHIPPED
from slipstream.progress import compiles
from slipstream.settings import Settings
from tests.waiting import GUARD_S

MACHINE = Machine(cores=4, memory_bytes=8 * 1024**3, gpu_memory_bytes=0, native_bfloat16=True)
CHAT, CODE = "slipstream-chat", "slipstream-code"
WILDCARD = "tcp://127.0.0.1:*"


def _model(name: str, pool: str, **more: Any) -> dict[str, Any]:
    return {"name": name, "tier": "chat", "pool": pool, "context_tokens": 512, **more}


def _pool(name: str = "own", driver: str = "embedded", model: str = CHAT, **engine: Any) -> dict[str, Any]:
    return {"name": name, "driver": driver, "engine": {"model": model, **engine}}


def _settings(*pools: dict[str, Any], models: tuple[dict[str, Any], ...] | None = None, **more: Any) -> Settings:
    """As a file would have it, without what [engine] says."""
    given = models if models is not None else tuple(_model(f"m-{pool['name']}", pool["name"]) for pool in pools)
    return msgspec.convert({"models": given, "pools": pools, **more}, Settings)


def _check(settings: Settings, machine: Machine = MACHINE) -> list[local_engine_check.Footprint]:
    return local_engine_check.check(local_engines.planned(settings)[1], machine)


def test_two_pools_engines_have_different_settings_and_other_pools_start_none() -> None:
    code = {**_pool("code", model=CODE, threads=2, speculation={"method": "ngram"}), "local_replicas": 2}
    code["engine"]["kv"] = {"budget_bytes": 256 << 20}
    hosted = {"name": "hosted", "driver": "openai", "replicas": [{"id": "h", "url": "http://127.0.0.1:9"}]}
    models = _model("m-chat", "chat"), _model("m-code", "code", tier="autocomplete"), _model("m-hosted", "hosted")
    pools = _pool("chat", kv={"budget_bytes": 64 << 20}), code, hosted
    served, engines = local_engines.planned(_settings(*pools, models=models))
    found = [
        (
            engine.name,
            engine.config.threads,
            engine.config.speculation.method,
            (engine.config.kv.budget_bytes or 0) >> 20,
        )
        for engine in engines
    ]
    assert found == [
        ("engine-chat-1", 1, "off", 64),
        ("engine-code-1", 2, "ngram", 256),
        ("engine-code-2", 2, "ngram", 256),
    ]
    assert [engine.config.model for engine in engines] == [str(SHIPPED / name) for name in (CHAT, CODE, CODE)]
    assert [engine.config.name for engine in engines] == ["m-chat", "m-code", "m-code"]
    assert [model.tokenizer for model in served.models] == [str(SHIPPED / CHAT), str(SHIPPED / CODE), None]


@pytest.mark.parametrize(("cores", "shares"), [(1, [1, 1, 1]), (8, [2, 2, 3]), (16, [6, 6, 3])])
def test_engines_share_the_cores_that_the_others_leave(
    cores: int, shares: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local_engines, "physical_cores", lambda: cores)
    pools = {**_pool("a"), "local_replicas": 2}, _pool("b", threads=3 if cores > 1 else 1)
    _, engines = local_engines.planned(_settings(*pools))
    assert [engine.config.threads for engine in engines] == shares


def test_engines_that_no_model_names_yet_tell_how_long_a_request_they_take() -> None:
    """A release refuses them by it; a model's own engines take what it promises, or the start is refused."""
    pools = _pool(), _pool("candidate", context_tokens=256)
    _, engines = local_engines.planned(_settings(*pools, models=(_model("m", "own"),)))
    assert [(engine.pool, engine.replica.context_tokens) for engine in engines] == [("own", 0), ("candidate", 256)]


@pytest.mark.parametrize(
    ("tiers", "said", "drafted"),
    [
        (("autocomplete",), None, "ngram"),
        (("autocomplete", "chat"), None, "off"),
        (("chat",), None, "off"),
        ((), None, "off"),
        (("autocomplete",), "off", "off"),
        (("chat",), "ngram", "ngram"),
    ],
)
def test_engines_of_the_autocomplete_tier_alone_draft_where_nothing_is_said(
    tiers: tuple[str, ...], said: str | None, drafted: str
) -> None:
    models = tuple(_model(f"m-{tier}", "own", tier=tier, engine_model="one") for tier in tiers)
    more: dict[str, Any] = {} if said is None else {"speculation": {"method": said}}
    _, [engine] = local_engines.planned(_settings(_pool(**more), models=(*models, _model("other", "hosted"))))
    assert engine.config.speculation.method == drafted


def test_several_engines_tell_of_their_caches_at_ports_of_their_own_and_the_router_is_told_where(
    tmp_path: Path,
) -> None:
    events = {"endpoint": "tcp://*:*", "replay_endpoint": WILDCARD}
    settings = _settings(_pool("a", kv_events=events), {**_pool("b", kv_events=events), "local_replicas": 2})
    planned, engines = local_engines.planned(settings)
    local_engine_check.check(engines, MACHINE)
    engines = local_engines.placed(engines, Ports(tmp_path / "ports"))
    ports = {engine.config.port for engine in engines}
    replicas = [each for pool in local_engines.with_replicas(planned, engines).pools for each in pool.replicas]
    endpoints = {each.kv_events for each in replicas} | {each.kv_events_replay for each in replicas}
    assert (len(ports), len(replicas), len(endpoints)) == (3, 3, 6)
    assert all(re.fullmatch(r"tcp://127\.0\.0\.1:\d+", endpoint) for endpoint in endpoints)
    for engine, replica in zip(engines, replicas, strict=True):
        assert engine.config.kv_events.endpoint == replica.kv_events.replace("127.0.0.1", "*")
        assert replica.url == f"http://127.0.0.1:{engine.config.port}"


def test_what_every_process_is_told_has_replicas_in_the_place_of_engines(tmp_path: Path) -> None:
    planned, engines = local_engines.planned(_settings({**_pool(), "local_replicas": 2}))
    told = local_engines.with_replicas(planned, local_engines.placed(engines, Ports(tmp_path / "ports")))
    [pool] = told.pools
    assert (pool.engine, [each.id for each in pool.replicas]) == (None, ["engine-own-1", "engine-own-2"])
    assert local_engines.planned(told) == (told, ())


def test_the_context_of_all_engines_is_cut_to_what_a_model_was_made_for() -> None:
    settings = msgspec.convert(
        {"engine": {"context_tokens": 6_000}, "models": [_model("m", "own")],
         "pools": [_pool(context_tokens=6_000)]}, Settings
    )  # fmt: skip
    [engine] = local_engines.planned(settings)[1]
    assert engine.config.context_tokens == 4_608


ELSEWHERE = {"id": "e", "url": "http://127.0.0.1:9"}
IMPOSSIBLE: dict[str, tuple[Settings, str]] = {
    "an engine of another driver": (
        _settings(_pool(driver="sglang")),
        r"pools\.own\.engine: it is for .* 'embedded', and pools\.own\.driver is 'sglang'; give pools\.own\.launch",
    ),
    "both replicas and an engine": (
        _settings({**_pool(), "replicas": [ELSEWHERE]}),
        r"pools\.own\.engine: `up` would start this pool's engines, and `replicas` lists other engines \(e\); give one",
    ),
    "an engine here and launched elsewhere": (
        _settings({**_pool(), "launch": {"model": "/m", "gpu": "h100"}}),
        r"pools\.own\.engine: `up` would start this pool's engines, and pools\.own\.launch describes engines started",
    ),
    "engines of nothing": (
        _settings({"name": "own", "driver": "embedded", "local_replicas": 2}),
        r"pools\.own\.local_replicas: 2 engines to start, but no model; give pools\.own\.engine = ",
    ),
    "no model": (_settings(_pool(model="")), r"pools\.own\.engine\.model: missing; give the folder of a model"),
    "a folder there is not": (
        _settings(_pool(model="/nowhere")), r"pools\.own\.engine\.model: /nowhere is not a folder"
    ),
    "a port": (_settings(_pool(port=8_123)), r"pools\.own\.engine\.port: `up` chooses it"),
    "two names": (
        _settings(_pool(), models=(_model("one", "own"), _model("two", "own"))),
        r"models\.two\.engine_model: an embedded engine serves one model under one name, and of pools\.own one "
        r"requests 'one' and two requests 'two'; set both to 'one'",
    ),
    "a context beyond the model's": (
        _settings(_pool(context_tokens=5_000)),
        r"pools\.own\.engine\.context_tokens: 5,000 tokens are more than slipstream-chat supports; set at most 4,608",
    ),
    "a promise beyond the model's": (
        _settings(_pool(), models=(_model("m", "own", context_tokens=9_000),)),
        r"models\.m\.context_tokens: 9,000, but the engines of pools\.own take 4,608 \(as made\); promise 4,608 at",
    ),
    "a promise beyond the engine's": (
        _settings(_pool(context_tokens=100)),
        r"models\.m-own\.context_tokens: 512, but the engines of pools\.own take 100 "
        r"\(pools\.own\.engine\.context_tokens\)",
    ),
    "keys and values that hold no context": (
        _settings(_pool(kv={"budget_bytes": 1_000_000}, dtype="float32")),
        r"pools\.own\.engine\.kv\.budget_bytes: 1,000,000 bytes ÷ [\d,]+ bytes a token hold [\d,]+ tokens of "
        r"slipstream-chat, and one request may need 4,608; give at least \d+, or a context of [\d,]+ at most",
    ),
    "a GPU there is not": (
        _settings(_pool(device="cuda")), r"pools\.own\.engine\.device: cuda is set, but torch finds no CUDA"
    ),
    "8-bit weights in 32-bit arithmetic": (
        _settings(_pool(quantization="int8", dtype="float32")),
        r"pools\.own\.engine\.quantization: int8 computes in bfloat16; pools\.own\.engine\.dtype must be auto or",
    ),
    "more than the memory": (
        _settings(_pool("a", kv={"budget_bytes": 5 << 30}), _pool("b", kv={"budget_bytes": 4 << 30})),
        r"pools\.a\.engine: the embedded engines together need 9\.\d\d GiB \(engine-a-1: 0\.\d\d GiB weights \+ 5\.00 "
        r"GiB KV; engine-b-1: .* 4\.00 GiB KV\), and this machine has 8\.00 GiB; lower kv\.budget_bytes",
    ),
    "one endpoint for two": (
        _settings({**_pool(kv_events={"endpoint": "tcp://127.0.0.1:5557"}), "local_replicas": 2}),
        r"pools\.own\.engine\.kv_events\.endpoint: tcp://127\.0\.0\.1:5557 would be that of engine-own-1 and of "
        r"engine-own-2, and only one can listen there; write tcp://127\.0\.0\.1:\*",
    ),
}  # fmt: skip


@pytest.mark.parametrize("fault", IMPOSSIBLE)
def test_what_cannot_be_stops_the_start_with_the_arithmetic(fault: str) -> None:
    settings, sentence = IMPOSSIBLE[fault]
    with pytest.raises(ConfigError, match=sentence) as refused:
        _check(settings)
    assert refused.value.param is not None


def test_what_is_said_to_be_enough_is() -> None:
    def budgeted(budget_bytes: int) -> Settings:
        return _settings(_pool(kv={"budget_bytes": budget_bytes}, dtype="float32"))

    with pytest.raises(ConfigError) as refused:
        _check(budgeted(1_000_000))
    enough = int(refused.value.message.partition("at least ")[2].partition(",")[0])
    assert _check(budgeted(enough))
    with pytest.raises(ConfigError):
        _check(budgeted(enough - 1))


def test_quantized_weights_take_half() -> None:
    plain, rounded = _check(_settings(_pool("a", dtype="bfloat16"), _pool("b", quantization="int8")))
    assert plain.weights_bytes == 2 * rounded.weights_bytes


def test_keys_and_values_of_8_bits_take_a_byte_each_and_two_for_a_scale() -> None:
    kinds = ("bfloat16", "auto"), ("bfloat16", "int8"), ("float32", "fp8"), ("float32", "auto")
    pools = [_pool(f"p{at}", dtype=dtype, kv={"dtype": kept}) for at, (dtype, kept) in enumerate(kinds)]
    heads = 2 * 4 * 4
    expected = [heads * 64 * 2, heads * 66, heads * 66, heads * 64 * 4]
    assert [each.token_bytes for each in _check(_settings(*pools))] == expected
    # a budget that holds the context in 8 bits only
    budget = 4_608 * heads * 66
    assert _check(_settings(_pool(kv={"budget_bytes": budget, "dtype": "int8"})))
    with pytest.raises(ConfigError, match=r"kv\.budget_bytes"):
        _check(_settings(_pool(kv={"budget_bytes": budget})))


def test_a_gpu_has_memory_of_its_own_and_8_bit_weights_are_not_for_it() -> None:
    machine = msgspec.structs.replace(MACHINE, gpu_memory_bytes=1 << 30)
    on_both = _settings(_pool("a", device="cuda"), _pool("b", kv={"budget_bytes": 5 << 30}))
    assert [each.on_gpu for each in _check(on_both, machine)] == [True, False]
    with pytest.raises(ConfigError, match=r"pools\.a\.engine: .* and its GPU has 1\.00 GiB"):
        _check(_settings(_pool("a", device="cuda", kv={"budget_bytes": 1 << 30})), machine)
    with pytest.raises(ConfigError, match=r"pools\.a\.engine\.quantization: int8 computes on a CPU only"):
        _check(_settings(_pool("a", device="auto", quantization="int8")), machine)


def test_more_threads_than_cores_are_told_of_and_no_reason_to_stop() -> None:
    _, engines = local_engines.planned(_settings(_pool("a", threads=2), {**_pool("b", threads=2), "local_replicas": 2}))
    said = local_engine_check.crowded(engines, MACHINE)
    assert said is not None
    assert "6 threads (2 of engine-a-1 + 2 of engine-b-1 + 2 of engine-b-2) and there are 4 cores" in said
    assert local_engine_check.crowded(engines[:2], MACHINE) is None


@pytest.mark.parametrize(
    "line", ["2026-11-28 16:56:46,708 INFO engines.x: {}", '{{"time":1,"logger":"x","message":"{}"}}']
)
async def test_an_engine_that_compiles_its_kernels_is_seen_by_its_log(tmp_path: Path, line: str) -> None:
    log = tmp_path / "engine.log"
    log.write_text("2026-11-28 16:56:45,705 INFO engines.embedded.server: listening on http://127.0.0.1:1\n")
    seen = asyncio.create_task(compiles(log))
    await asyncio.sleep(0)
    assert not seen.done(), "the usual start"
    with log.open("a") as file:
        file.write(line.format(COMPILING) + "\n")
    await asyncio.wait_for(seen, GUARD_S)
