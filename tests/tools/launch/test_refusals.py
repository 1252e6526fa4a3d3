"""Settings that cannot work are refused with their arithmetic and what would do."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any

import msgspec
import pytest
import torch
from safetensors.torch import save_file

from contracts.desired_state import Replica
from contracts.errors import ConfigError
from engines.performance.catalog import LLAMA_70B
from engines.performance.fit import (
    ContextBeyondKv,
    HeadsNotDivisible,
    PrecisionNotSupported,
    TensorParallelAcrossNodes,
    WeightsDoNotFit,
)
from engines.performance.precision import Precision
from tests.tools.launch.launched import HEAD, launch_of, pool_of, rendered
from tools.launch.checkpoint import read_checkpoint
from tools.launch.config import LaunchSpeculation, LaunchWorkload
from tools.launch.draft_head import HeadOfAnotherModel, head_parameters
from tools.launch.matrix import SettingsConflict

MODELS = Path(__file__).parents[3] / "models"
SGLANG = pool_of("sglang")


@pytest.mark.parametrize(
    ("launch", "cards", "context", "error", "told"),
    [
        ({"shape": "llama-70b"}, 1, 16_384, ContextBeyondKv, "at most"),
        ({"shape": "llama-70b", "weights": "bf16"}, 1, 8_192, WeightsDoNotFit, "GPUs would hold them"),
        ({"shape": "llama-70b"}, 16, 8_192, TensorParallelAcrossNodes, "spans machines"),
        ({"shape": "llama-70b", "gpus_per_node": 4}, 8, 8_192, TensorParallelAcrossNodes, "use at most 4"),
        ({"shape": "llama-70b"}, 2, 600_000, ContextBeyondKv, "at most"),
        ({}, 3, 8_192, HeadsNotDivisible, "use a divisor of 32"),
        ({"gpu": "a100", "weights": "fp8"}, 1, 8_192, PrecisionNotSupported, "no units for fp8"),
        ({"weights": "nvfp4"}, 1, 8_192, PrecisionNotSupported, "no units for nvfp4"),
        ({"gpu": "b200", "attention": "fa3"}, 1, 8_192, ConfigError, "no kernels for B200"),
        ({"gpu": "a100", "kv_dtype": "fp8"}, 1, 8_192, SettingsConflict, "no units for FP8"),
        ({"shape": ""}, 1, 8_192, ConfigError, "no folder with a config.json on this machine"),
    ],
)
def test_what_cannot_work_is_refused(
    launch: dict[str, Any], cards: int, context: int, error: type[ConfigError], told: str
) -> None:
    with pytest.raises(error, match=told):
        rendered(SGLANG, launch_of(**launch), cards=cards, context_tokens=context)


@pytest.mark.parametrize(("driver", "name"), [("vllm", "vLLM"), ("embedded", "the embedded engine")])
def test_a_tree_of_drafts_is_refused_where_chains_are_drafted(driver: str, name: str) -> None:
    tree = LaunchSpeculation(draft_model="/models/head", topk=4, draft_tokens=8, adaptive=False)
    launch = launch_of(speculation=tree, weights="bf16", kv_dtype="bf16")
    with pytest.raises(SettingsConflict, match=f"{name} drafts chains only; set topk = 1") as refused:
        rendered(pool_of(driver), launch, speculation=True)
    assert str(refused.value.param).endswith("speculation.topk")


@pytest.mark.parametrize(
    ("launch", "role", "drafts", "told"),
    [
        ({"speculation": LaunchSpeculation()}, "unified", True, "speculation.draft_model: none; eagle3 needs a head"),
        (
            {"speculation": LaunchSpeculation(draft_model="/models/head", topk=4)},
            "unified",
            True,
            "speculation.adaptive: true; the number of drafts is adapted for chains only; set topk = 1",
        ),
        (
            {"chunk_tokens": 2_048},
            "prefill",
            False,
            "chunk_tokens: 2,048; no stream waits for a prompt .* is 4 chunks of 2,048 instead of 1",
        ),
        ({"chunk_tokens": 8_192}, "decode", False, "chunk_tokens: 8,192; .*receives computed prompts"),
        ({"gpu": "a100", "kv_dtype": "fp8"}, "unified", False, "kv_dtype: fp8; A100 has no units for FP8"),
    ],
)
def test_settings_that_work_against_each_other_are_told_as_the_setting_its_value_and_the_reason(
    launch: dict[str, Any], role: str, drafts: bool, told: str
) -> None:
    with pytest.raises(SettingsConflict, match=rf"^pools\.gpu\.launch\.{told}"):
        rendered(pool_of("sglang", role=role), launch_of(**launch), speculation=drafts)


@pytest.mark.parametrize("hardware", ["A100", "8xA100", "2 × A100-80GB", "a100_sxm"])
def test_a_card_that_is_not_the_hardware_is_refused(hardware: str) -> None:
    with pytest.raises(
        SettingsConflict, match=rf"gpu: h100; pools\.gpu\.hardware is '{re.escape(hardware)}'.*H100; set gpu = \"a100\""
    ) as no:
        rendered(pool_of("sglang", hardware=hardware), launch_of())
    assert no.value.param == "pools.gpu.launch.gpu"
    rendered(pool_of("sglang", hardware=hardware), launch_of(gpu="a100"))


def test_the_hardware_of_a_replica_goes_before_its_pools() -> None:
    replica = Replica(id="gpu-0", url="http://10.0.0.5:30000", hardware="B200x1")
    with pytest.raises(SettingsConflict, match=r"gpu: h100; pools\.gpu\.replicas\.gpu-0\.hardware is 'B200x1'"):
        rendered(pool_of("sglang", hardware="H100", replicas=(replica,)), launch_of())


@pytest.mark.parametrize("hardware", ["", "H100x2", "EPYC 9555", "GB200", "A1000", "an H100, before an A100", "rack 3"])
def test_hardware_that_names_no_other_card_is_taken(hardware: str) -> None:
    rendered(pool_of("sglang", hardware=hardware), launch_of())


def test_priorities_that_the_gateway_sends_are_not_switched_off() -> None:
    pool = pool_of("tensorrt_llm", request_priorities=True, api_key_required=False)
    with pytest.raises(SettingsConflict, match=r"launch\.priorities: false; the pool has request_priorities = true"):
        rendered(pool, launch_of(priorities=False, version="1.4.0rc1"))
    rendered(pool, launch_of(version="1.4.0rc1"))


def test_a_shape_of_another_size_than_the_folder_is_refused(tmp_path: Path) -> None:
    model = str(ours(tmp_path))
    with pytest.raises(
        ConfigError, match=r"shape: llama-8b is 8\.03 billion .* has a config.json here .*leave shape out"
    ):
        rendered(SGLANG, launch_of(model=model))
    rendered(SGLANG, launch_of(model=model, shape=str(MODELS / "slipstream-code")))
    config = msgspec.json.decode((MODELS / "slipstream-code" / "config.json").read_bytes())
    (tmp_path / "slipstream-code" / "config.json").write_bytes(
        msgspec.json.encode({**config, "architectures": ["MixtralForCausalLM"]})
    )
    rendered(SGLANG, launch_of(model=model))  # of a kind that is not modelled: the shape stands for it


def test_a_head_that_is_missing_where_the_model_is_is_refused() -> None:
    ours = launch_of(model=str(MODELS / "slipstream-code"), shape="", speculation=HEAD)
    with pytest.raises(ConfigError, match=r"speculation\.draft_model: /models/head has no config.json here.*correct"):
        rendered(SGLANG, ours, speculation=True, context_tokens=1_024)


@pytest.mark.parametrize("url", ["https://gpu.example.com", "http://10.0.0.5/engine", "http://10.0.0.5"])
def test_where_the_engine_listens_must_be_known(url: str) -> None:
    pool = pool_of("sglang", replicas=(Replica(id="a", url=url),))
    with pytest.raises(ConfigError, match="give the engine's port"):
        rendered(pool, launch_of())
    assert "30000" in rendered(pool, launch_of(port=30_000)).command


@pytest.mark.parametrize(("most", "told"), [(64, "waits in the engine"), (8, "never used"), (32, ""), (0, "")])
def test_what_the_router_gives_beside_what_is_run_is_told(most: int, told: str) -> None:
    notes = " ".join(rendered(pool_of("sglang", max_concurrency=most), launch_of()).notes)
    assert ("requests at a time" in notes) is bool(told)
    assert told in notes


def test_more_requests_at_once_than_memory_holds_are_told_with_the_arithmetic() -> None:
    workload = LaunchWorkload(prompt_tokens=2_000, output_tokens=300, cached=0.5)
    for launch, wanted in ((launch_of(), "1,024"), (launch_of(workload=workload), "1,300")):
        notes = " ".join(rendered(SGLANG, launch, max_running=4_000).notes)
        told = re.search(r"4,000 at once have (\d+) tokens .* is ([\d,]+): .*; ([\d,]+) fit", notes)
        assert told is not None, notes
        assert told[2] == wanted
        fit = int(told[3].replace(",", ""))
        assert "at once have" not in " ".join(rendered(SGLANG, launch, max_running=fit).notes)
        assert "at once have" in " ".join(rendered(SGLANG, launch, max_running=fit + 2).notes)


def test_a_pool_that_somebody_else_starts_and_drafts_that_are_not_described_are_not_rendered() -> None:
    with pytest.raises(ConfigError, match="nothing is rendered for 'openai'"):
        rendered(pool_of("openai"), launch_of())
    with pytest.raises(ConfigError, match="the settings do not say how"):
        rendered(SGLANG, launch_of(), speculation=True)


def test_a_head_that_costs_what_it_saves_is_refused() -> None:
    poor = LaunchSpeculation(draft_model="/models/head", acceptance=0.02)
    with pytest.raises(ConfigError, match="the head costs what it saves"):
        rendered(SGLANG, launch_of(speculation=poor), speculation=True)


def ours(folder: Path, name: str = "slipstream-code", **changed: Any) -> Path:
    """A copy of a shipped model's configurations, with some of the head's changed."""
    copy = folder / name
    (copy / "draft").mkdir(parents=True)
    shutil.copy(MODELS / name / "config.json", copy)
    config = msgspec.json.decode((MODELS / name / "draft" / "config.json").read_bytes())
    (copy / "draft" / "config.json").write_bytes(msgspec.json.encode({**config, **changed}))
    return copy


def drafting(model: Path, algorithm: str = "eagle3", driver: str = "sglang", context_tokens: int = 4_096) -> None:
    speculation = LaunchSpeculation(algorithm=algorithm, draft_model=str(model / "draft"))  # type: ignore[arg-type]
    launch = launch_of(model=str(model), shape="", speculation=speculation)
    rendered(pool_of(driver), launch, speculation=True, context_tokens=context_tokens)


@pytest.mark.parametrize("driver", ["sglang", "tensorrt_llm", "vllm", "embedded"])
@pytest.mark.parametrize("name", ["slipstream-code", "slipstream-chat"])
def test_the_heads_that_come_along_are_taken_by_every_engine(name: str, driver: str) -> None:
    drafting(MODELS / name, driver=driver)


def test_a_head_that_does_not_say_its_layers_is_refused_for_a_model_of_few(tmp_path: Path) -> None:
    silent = ours(tmp_path, eagle_config=None)
    with pytest.raises(
        HeadOfAnotherModel, match=r"for 6 layers engines do not find them.*eagle_config.*python -m tools.training head"
    ):
        drafting(silent)


def test_vllm_is_told_layers_in_its_own_way_or_refused(tmp_path: Path) -> None:
    """Its own key missing, it would take outputs for inputs: one layer too early, and nothing says so."""
    older = ours(tmp_path, eagle_aux_hidden_state_layer_ids=None)
    with pytest.raises(ConfigError, match=r"\[0, 2, 4\].*\"eagle_aux_hidden_state_layer_ids\": \[1, 3, 5\]"):
        drafting(older, driver="vllm")
    drafting(older)


def test_a_map_of_the_whole_vocabulary_is_refused_for_vllm_alone(tmp_path: Path) -> None:
    """It has no place for one, and would end as it starts."""
    chat = ours(tmp_path, "slipstream-chat")
    file = chat / "draft" / "model.safetensors"
    maps = {"d2t": torch.zeros(2_048, dtype=torch.int64), "t2d": torch.ones(2_048, dtype=torch.bool)}
    save_file(maps, file)
    drafting(chat)
    with pytest.raises(ConfigError, match=r"all 2,048 tokens.*model\.safetensors has d2t and t2d.*leave them out"):
        drafting(chat, driver="vllm")
    save_file({"norm.weight": torch.zeros(4)}, file)
    drafting(chat, driver="vllm")
    code = ours(tmp_path, "slipstream-code")
    save_file(maps, code / "draft" / "model.safetensors")  # half of the vocabulary: there the map is needed
    drafting(code, driver="vllm")
    file.write_bytes(b"no safetensors at all")
    with pytest.raises(ConfigError, match="is not a safetensors file"):
        drafting(chat, driver="vllm")


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"hidden_size": 512}, "hidden states are 512"),
        ({"vocab_size": 32_000}, "vocabulary are 32000"),
        ({"torch_dtype": "float16"}, "numbers are float16"),
        ({"max_position_embeddings": 4_096}, "made for 4,096 tokens"),
        ({"architectures": ["LlamaForCausalLM"]}, "no eagle3 head"),
        ({"eagle_config": {"eagle_aux_hidden_state_layer_ids": [1, 15, 28]}}, "has 6, counted from 0.*training head"),
    ],
)
def test_a_head_of_another_model_is_refused(tmp_path: Path, changed: dict[str, Any], told: str) -> None:
    with pytest.raises(HeadOfAnotherModel, match=told):
        drafting(ours(tmp_path, **changed), context_tokens=8_192)


def test_a_head_of_another_algorithm_is_refused(tmp_path: Path) -> None:
    with pytest.raises(HeadOfAnotherModel, match="no eagle head"):
        drafting(ours(tmp_path), "eagle")


def test_what_could_not_be_compared_is_said() -> None:
    spec = rendered(SGLANG, launch_of(speculation=HEAD), speculation=True)
    assert any("so the two were not compared" in note for note in spec.notes)


def test_a_head_that_is_not_here_is_taken_to_be_of_the_usual_size() -> None:
    """The published head for Llama 3.3 70B is 3 GB in BF16."""
    assert head_parameters(Path("/nowhere"), LLAMA_70B) * 2 == pytest.approx(3e9, rel=0.1)


def test_numbers_of_a_folder_are_read(tmp_path: Path) -> None:
    def written(name: str, quant: dict[str, Any] | None = None, modelopt: str = "") -> Path:
        folder = tmp_path / name
        folder.mkdir()
        (folder / "config.json").write_bytes(
            msgspec.json.encode({"torch_dtype": "bfloat16", "quantization_config": quant})
        )
        if modelopt:
            told = {"quantization": {"quant_algo": modelopt, "kv_cache_quant_algo": "FP8"}}
            (folder / "hf_quant_config.json").write_bytes(msgspec.json.encode(told))
        return folder

    def kept(folder: Path) -> tuple[Precision, str, bool]:
        found = read_checkpoint(folder)
        assert found is not None
        return found.precision, found.toolchain, found.kv_scales

    assert read_checkpoint(tmp_path / "nowhere") is None
    assert kept(written("plain")) == (Precision.BF16, "", False)
    assert kept(written("modelopt", modelopt="FP8")) == (Precision.FP8, "modelopt", True)
    tensors = {"quant_method": "compressed-tensors", "format": "float-quantized"}
    assert kept(written("tensors", tensors)) == (Precision.FP8, "compressed-tensors", False)
    with pytest.raises(ConfigError, match="'gptq', which is not modelled"):
        read_checkpoint(written("gptq", {"quant_method": "gptq"}))


def test_numbers_that_are_not_the_folders_are_refused(tmp_path: Path) -> None:
    folder = tmp_path / "fp8"
    shutil.copytree(MODELS / "slipstream-code", folder, ignore=shutil.ignore_patterns("*.safetensors"))
    (folder / "hf_quant_config.json").write_text('{"quantization": {"quant_algo": "FP8"}}')
    launch = launch_of(model=str(folder), shape="", weights="bf16")
    with pytest.raises(ConfigError, match=r"bf16 is requested, and .* holds fp8"):
        rendered(SGLANG, launch)
    spec = rendered(SGLANG, launch_of(model=str(folder), shape=""))
    assert "modelopt_fp8" in spec.command
    assert any("no scales for keys and values" in note for note in spec.notes)
