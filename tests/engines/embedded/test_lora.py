"""A request with an adapter is answered as by the model that it makes when it is merged, whatever runs beside it."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any, Literal

import msgspec
import pytest
import torch
from safetensors.torch import load_file, save_file

from contracts.errors import InvalidField, ModelNotFound, Overloaded
from engines.embedded.config import LoraConfig
from engines.embedded.engine import Engine
from engines.embedded.lora.adapter import Adapter
from engines.embedded.lora.adapters import Adapters
from engines.embedded.lora.load import load_adapter
from engines.embedded.models.registry import load_model
from engines.embedded.request import Request
from speculative.config import SpeculationConfig
from tests.engines.embedded.peft_folder import PROJECTIONS, merge, write_adapter
from tests.engines.embedded.test_families import make
from tests.engines.embedded.tiny import SHIPPED, finish, make_engine, request, text

PROMPT = tuple(range(300, 340))
FAMILIES = ("llama", "mistral", "qwen2", "qwen3", "phi3", "gemma3_text")
FUSED = ("qkv_proj", "gate_up_proj")


def family_model(folder: Path, family: str, **change: Any) -> Path:
    """A random model of a family, with a tokenizer."""
    make(folder, family, {"vocab_size": 2048, "pad_token_id": 0, **change}, torch.float32)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(SHIPPED / "slipstream-chat" / name, folder / name)
    return folder


def load(engine: Engine, folder: Path, number: int = 1) -> Adapter:
    return load_adapter(engine.model, folder.name, folder, 64, number)


def with_adapter(rid: str, adapter: Adapter | None, prompt: tuple[int, ...] = PROMPT, **more: Any) -> Request:
    return msgspec.structs.replace(request(rid, prompt, speculate=adapter is None, **more), adapter=adapter)


def scores(engine: Engine, adapter: Adapter | None = None) -> list[float]:
    """Log probabilities of a prompt and of what is generated."""
    deltas = finish(engine, with_adapter("r", adapter, logprobs=0, score_prompt=True))["r", 0]
    return [one.logprob for delta in deltas for one in delta.logprobs]


@pytest.mark.parametrize("family", FAMILIES)
def test_probabilities_are_those_of_the_merged_model(tmp_path: Path, family: str) -> None:
    model = family_model(tmp_path / "model", family)
    projections = (*PROJECTIONS, *(FUSED if family == "phi3" else ()))
    folder = write_adapter(tmp_path / "a", model, projections=projections, lora_alpha=6, use_rslora=family == "qwen3")
    engine = make_engine(model)
    adapted = scores(engine, load(engine, folder))
    merged = scores(make_engine(merge(model, folder, tmp_path / "merged")))
    assert adapted == pytest.approx(merged, abs=1e-3)
    assert adapted != pytest.approx(scores(engine), abs=1e-1)


@pytest.mark.parametrize("projection", PROJECTIONS)
def test_any_projection_may_be_adapted_alone(tmp_path: Path, tiny_model: Path, projection: str) -> None:
    folder = write_adapter(tmp_path / "a", tiny_model, projections=(projection,))
    engine = make_engine(tiny_model)
    merged = scores(make_engine(merge(tiny_model, folder, tmp_path / "merged")))
    assert scores(engine, load(engine, folder)) == pytest.approx(merged, abs=1e-3)


def test_a_batch_holds_several_adapters_and_none(tmp_path: Path, tiny_model: Path) -> None:
    folders = [write_adapter(tmp_path / f"a{seed}", tiny_model, seed=seed, r=2 + seed) for seed in range(2)]
    alone = [
        text(finish(make_engine(tiny_model), with_adapter("r", None))["r", 0]),
        *(
            text(finish(make_engine(merge(tiny_model, folder, tmp_path / f"m{at}")), with_adapter("r", None))["r", 0])
            for at, folder in enumerate(folders)
        ),
    ]
    assert len(set(alone)) == 3
    # chunks of prompts and generated tokens stand in one step, and guesses beside adapters
    engine = make_engine(
        tiny_model, max_batch_tokens=24, speculation=SpeculationConfig(method="ngram", governed=False, ngram_least=1)
    )
    adapters = [None, *(load(engine, folder) for folder in folders)]
    together = finish(
        engine,
        *(with_adapter(f"r{at}", adapter, choices=2) for at, adapter in enumerate(adapters)),
        *(with_adapter(f"s{at}", adapter) for at, adapter in enumerate(adapters)),
    )
    for at, expected in enumerate(alone):
        assert [text(together[f"{kind}{at}", 0]) for kind in "rs"] == [expected] * 2
        assert text(together[f"r{at}", 1]) == expected


def test_keys_and_values_are_shared_by_one_load_of_an_adapter_only(tmp_path: Path, tiny_model: Path) -> None:
    engine = make_engine(tiny_model)
    folder = write_adapter(tmp_path / "a", tiny_model)
    first, again = load(engine, folder), load(engine, folder, 2)

    def cached(rid: str, adapter: Adapter | None, salt: str = "") -> int:
        return finish(engine, with_adapter(rid, adapter, cache_salt=salt))[rid, 0][-1].cached_tokens

    assert [cached(f"1{at}", adapter) for at, adapter in enumerate((None, first, again))] == [0, 0, 0]
    assert cached("other salt", first, "other") == 0
    assert [cached(f"2{at}", adapter) for at, adapter in enumerate((None, first, again))] == [39, 39, 39]


@pytest.mark.parametrize("kv_dtype", ["fp8", "int8"])
def test_keys_and_values_in_8_bits_are_an_adapters_own_and_reused(
    tmp_path: Path, tiny_model: Path, kv_dtype: Literal["fp8", "int8"]
) -> None:
    folder = write_adapter(tmp_path / "a", tiny_model)
    engine = make_engine(tiny_model, kv_dtype=kv_dtype)
    adapter = load(engine, folder)
    texts: dict[str, list[str]] = {"plain": [], "adapted": []}
    for at in range(2):
        for name, own in (("plain", None), ("adapted", adapter)):
            deltas = finish(engine, with_adapter(f"{name}{at}", own))[f"{name}{at}", 0]
            assert deltas[-1].cached_tokens == 39 * at
            texts[name].append(text(deltas))
    assert texts["plain"][0] == texts["plain"][1] != texts["adapted"][0] == texts["adapted"][1]
    merged = make_engine(merge(tiny_model, folder, tmp_path / "merged"), kv_dtype=kv_dtype)
    assert text(finish(merged, with_adapter("m", None))["m", 0]) == texts["adapted"][0]


def test_bfloat16_and_our_own_kernels_stay_close_to_the_merged_model(tmp_path: Path) -> None:
    model = family_model(tmp_path / "model", "qwen3", head_dim=64, hidden_size=80, intermediate_size=100)
    folder = write_adapter(tmp_path / "a", model)
    engine = make_engine(model, dtype="bfloat16", page_tokens=16, pages=64)
    adapter = load(engine, folder)
    merged = scores(make_engine(merge(model, folder, tmp_path / "merged")))
    assert torch.tensor(scores(engine, adapter)).sub(torch.tensor(merged)).abs().mean() < 0.1
    # beside one that our kernels compute
    both = finish(engine, with_adapter("a", adapter), with_adapter("b", None))
    assert text(both["b", 0]) == text(finish(engine, with_adapter("b", None))["b", 0])
    assert text(both["a", 0]) == text(finish(engine, with_adapter("a", adapter))["a", 0])


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("peft_type", "IA3"),
        ("use_dora", True),
        ("bias", "all"),
        ("modules_to_save", ["lm_head"]),
        ("rank_pattern", {"q_proj": 8}),
        ("alpha_pattern", {"q_proj": 8}),
        ("init_lora_weights", "pissa"),
        ("fan_in_fan_out", True),
        ("r", 65),
        ("r", 0),
        ("lora_alpha", "8"),
        ("lora_alpha", 10**400),
    ],
)
def test_what_is_not_computed_is_refused_by_its_name(tmp_path: Path, tiny_model: Path, field: str, value: Any) -> None:
    folder = write_adapter(tmp_path / "a", tiny_model, weights={})
    config = msgspec.json.decode((folder / "adapter_config.json").read_bytes())
    (folder / "adapter_config.json").write_bytes(msgspec.json.encode({**config, field: value}))
    with pytest.raises(InvalidField) as error:
        load_adapter(load_model(tiny_model, "float32"), "a", folder, 64, 1)
    assert error.value.param == field
    assert field in error.value.message


@pytest.mark.parametrize(
    ("name", "shape"),
    [
        ("base_model.model.lm_head.lora_A.weight", (4, 32)),
        ("base_model.model.model.layers.7.self_attn.q_proj.lora_A.weight", (4, 32)),
        ("base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight", (4, 32)),
        ("base_model.model.model.layers.0.self_attn.q_proj.lora_magnitude_vector", (32,)),
    ],
)
def test_a_tensor_without_a_place_or_without_its_pair_is_refused(
    tmp_path: Path, tiny_model: Path, name: str, shape: tuple[int, ...]
) -> None:
    folder = write_adapter(tmp_path / "a", tiny_model, weights={name: torch.zeros(shape)})
    with pytest.raises(InvalidField, match=r"only .* is present|no projection for"):
        load_adapter(load_model(tiny_model, "float32"), "a", folder, 64, 1)


def test_an_adapter_of_another_model_is_refused(tmp_path: Path, tiny_model: Path) -> None:
    other = family_model(tmp_path / "model", "llama", hidden_size=64)
    with pytest.raises(InvalidField, match="the model and r imply"):
        load_adapter(load_model(tiny_model, "float32"), "a", write_adapter(tmp_path / "a", other), 64, 1)


def test_numbers_that_are_not_finite_are_refused(tmp_path: Path, tiny_model: Path) -> None:
    folder = write_adapter(tmp_path / "a", tiny_model, projections=("q_proj",))
    path = folder / "adapter_model.safetensors"
    weights = load_file(path)
    name = min(weights)
    weights[name][0, 0] = float("inf")
    save_file(weights, str(path))
    with pytest.raises(InvalidField, match="not finite") as error:
        load_adapter(load_model(tiny_model, "float32"), "a", folder, 64, 1)
    assert error.value.param == name


async def test_as_many_are_held_as_there_may_be_and_what_is_used_stays(tmp_path: Path, tiny_model: Path) -> None:
    model = load_model(tiny_model, "float32")
    folder = str(write_adapter(tmp_path / "a", tiny_model, projections=("q_proj",)))
    used: set[str] = set()
    adapters = Adapters(LoraConfig(max_loaded=2), lambda adapter: adapter.name in used)

    def names() -> list[str]:
        return [adapter.name for adapter in adapters.loaded]

    first = await adapters.load(model, "a", folder)
    with pytest.raises(InvalidField, match="already loaded"):
        await adapters.load(model, "a", folder)
    await adapters.load(model, "b", folder)
    assert adapters.get("a") is first
    await adapters.load(model, "c", folder)
    assert names() == ["a", "c"]
    with pytest.raises(ModelNotFound):
        adapters.get("b")
    used = {"a", "c"}
    with pytest.raises(Overloaded, match=r"engine\.lora\.max_loaded"):
        await adapters.load(model, "d", folder)

    async def unused(adapter: Adapter) -> None:
        """While requests still use it, its place is not free."""
        with pytest.raises(Overloaded):
            await adapters.load(model, "d", folder)

    await adapters.unload("a", unused)
    with pytest.raises(InvalidField, match="not loaded"):
        await adapters.unload("a", unused)
    assert (await adapters.load(model, "a", folder)).load_number > first.load_number
    assert names() == ["c", "a"]
