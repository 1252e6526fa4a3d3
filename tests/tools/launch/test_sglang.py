"""What is rendered for SGLang, against the options that its own parser gave (tests/sglang asks the parser itself)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from contracts.desired_state import Replica
from contracts.errors import ConfigError
from contracts.speculation import SpeculationRule
from tests.tools.launch.launched import HEAD, KEY_FILE, launch_of, options_of, pool_of, rendered
from tools.launch.config import LaunchSpeculation
from tools.launch.matrix import SettingsConflict
from tools.launch.options.known import UnknownOption, known_options

MODELS = Path(__file__).parents[3] / "models"
SGLANG = pool_of("sglang")


def test_every_option_is_the_engines_own() -> None:
    options = known_options("sglang")
    for role in ("unified", "prefill", "decode"):
        for speculation in (False, True):
            spec = rendered(pool_of("sglang", role=role), launch_of(speculation=HEAD), speculation)
            assert {each.name for each in spec.arguments} <= set(options.options)
            assert spec.engine == f"SGLang {options.version}"


def test_the_levers_of_the_documents_are_options() -> None:
    spec = rendered(SGLANG, launch_of(speculation=HEAD), speculation=True, cards=2)
    options = options_of(spec)
    assert options["--tp-size"] == ("2",)
    assert options["--kv-cache-dtype"] == ("fp8_e4m3",)
    assert options["--attention-backend"] == ("fa3",)
    assert options["--chunked-prefill-size"] == ("8192",)
    assert options["--max-running-requests"] == ("32",)
    assert options["--context-length"] == ("8192",)
    assert options["--speculative-algorithm"] == ("EAGLE3",)
    assert options["--speculative-draft-model-quantization"] == ("unquant",)
    assert int(options["--speculative-num-draft-tokens"][0]) == int(options["--speculative-num-steps"][0]) + 1
    assert {"--enable-priority-scheduling", "--enable-metrics", "--enable-cache-report"} <= set(options)


def test_an_a100_has_chunks_numbers_and_kernels_of_its_own() -> None:
    options = options_of(rendered(SGLANG, launch_of(gpu="a100")))
    assert options["--chunked-prefill-size"] == ("2048",)
    assert options["--kv-cache-dtype"] == ("bf16",)
    assert options["--attention-backend"] == ("flashinfer",)


def test_without_speculation_nothing_of_it_is_written_and_keys_and_values_have_its_memory() -> None:
    with_head = options_of(rendered(SGLANG, launch_of(speculation=HEAD), speculation=True))
    without = options_of(rendered(SGLANG, launch_of(speculation=HEAD), speculation=False))
    assert not [name for name in without if "speculative" in name]
    assert float(without["--mem-fraction-static"][0]) > float(with_head["--mem-fraction-static"][0])


def test_the_adaptive_table_names_the_number_it_starts_with() -> None:
    spec = rendered(SGLANG, launch_of(speculation=HEAD), speculation=True)
    table = json.loads(spec.files[0].content)
    batches = {int(name): entry["candidate_steps"] for name, entry in table.items() if name.isdigit()}
    assert min(batches) == 1
    steps = int(options_of(spec)["--speculative-num-steps"][0])
    assert steps in {each for candidates in batches.values() for each in candidates}
    assert options_of(spec)["--speculative-adaptive-config"] == (spec.files[0].path,)


def test_the_adaptive_table_ends_where_the_pools_governor_says() -> None:
    """`candidate_steps: [0]`, as SGLang's own table has it for its largest batches."""
    pool = msgspec.structs.replace(SGLANG, speculation=SpeculationRule(governed=True, off_above_running=6.5))
    free, capped = (
        json.loads(rendered(each, launch_of(speculation=HEAD), speculation=True).files[0].content)
        for each in (SGLANG, pool)
    )
    batches = {int(name): entry["candidate_steps"] for name, entry in capped.items() if name.isdigit()}
    assert (max(batches), batches[max(batches)]) == (7, [0])
    assert all(free[str(batch)]["candidate_steps"] == steps for batch, steps in batches.items() if batch < 7)


@pytest.mark.parametrize(
    "drafts",
    [
        LaunchSpeculation(draft_model="/models/head", adaptive=False),
        LaunchSpeculation(algorithm="ngram", adaptive=False),
    ],
)
def test_without_a_table_of_its_own_its_drafts_cannot_be_governed(drafts: LaunchSpeculation) -> None:
    pool = msgspec.structs.replace(SGLANG, speculation=SpeculationRule(governed=True))
    with pytest.raises(SettingsConflict, match="only with a table of its own"):
        rendered(pool, launch_of(speculation=drafts), speculation=True)


def test_the_key_is_read_where_the_engine_runs_and_never_an_option() -> None:
    spec = rendered(SGLANG, launch_of())
    assert "--api-key" not in options_of(spec)
    assert KEY_FILE in spec.before[0]
    assert options_of(spec)["--config"][0] in spec.before[0]
    assert "--config" not in options_of(
        rendered(pool_of("sglang", api_key_file="", api_key_required=False), launch_of())
    )
    token = rendered(pool_of("sglang", api_key_file=""), launch_of())
    assert "/srv/slipstream/token" in token.before[0]
    variable = rendered(pool_of("sglang", api_key_file="", api_key_env="GPU_KEY"), launch_of())
    assert '"$GPU_KEY"' in variable.before[0]


def test_kv_events_are_published_where_the_router_connects() -> None:
    replica = Replica(
        id="a", url="http://10.0.0.5:30000", kv_events="tcp://10.0.0.5:5557", kv_events_replay="tcp://h:5558"
    )
    config = json.loads(
        options_of(rendered(pool_of("sglang", replicas=(replica,)), launch_of()))["--kv-events-config"][0]
    )
    assert config["endpoint"] == "tcp://*:5557"
    assert config["replay_endpoint"] == "tcp://*:5558"


def test_adapters_have_places_and_events_that_tell_them_apart() -> None:
    replica = Replica(id="a", url="http://10.0.0.5:30000", kv_events="tcp://10.0.0.5:5557")
    options = options_of(rendered(pool_of("sglang", max_adapters=16, replicas=(replica,)), launch_of(adapter_rank=32)))
    assert options["--max-loaded-loras"] == ("16",)
    assert options["--max-loras-per-batch"] == ("8",)
    assert options["--max-lora-rank"] == ("32",)
    assert json.loads(options["--kv-events-config"][0])["format"] == "dynamo"
    few = options_of(rendered(pool_of("sglang", max_adapters=2), launch_of()))
    assert few["--max-loras-per-batch"] == few["--max-loaded-loras"] == ("2",)
    assert "--enable-lora" not in options_of(rendered(SGLANG, launch_of()))


def test_adapters_and_an_adaptive_table_do_not_start_together() -> None:
    pool, fixed = pool_of("sglang", max_adapters=2), LaunchSpeculation(draft_model="/models/head", adaptive=False)
    with pytest.raises(SettingsConflict, match="set adaptive = false"):
        rendered(pool, launch_of(speculation=HEAD), speculation=True)
    assert "--enable-lora" in options_of(rendered(pool, launch_of(speculation=fixed), speculation=True))


def test_halves_of_a_pair_say_which_they_are() -> None:
    prefill, decode = (
        options_of(rendered(pool_of("sglang", role=role), launch_of())) for role in ("prefill", "decode")
    )
    assert prefill["--disaggregation-mode"] == ("prefill",)
    assert prefill["--disaggregation-bootstrap-port"] == ("8998",)
    assert prefill["--chunked-prefill-size"] == ("8192",)
    assert decode["--disaggregation-transfer-backend"] == prefill["--disaggregation-transfer-backend"]
    assert "--chunked-prefill-size" not in decode


def test_weights_are_rounded_at_the_start_only_where_the_folder_is_known_to_hold_bf16() -> None:
    ours = launch_of(model=str(MODELS / "slipstream-code"), shape="", weights="fp8")
    assert options_of(rendered(SGLANG, ours))["--quantization"] == ("fp8",)
    assert "--quantization" not in options_of(rendered(SGLANG, launch_of(weights="fp8")))


@pytest.mark.parametrize(
    ("extra", "error", "told"),
    [
        (("--api-key", "sk-1"), ConfigError, "a key never appears on a command line"),
        (("--tp-size", "4"), ConfigError, "--tp-size would appear twice"),
        (("--tensor-parallel-size=4",), ConfigError, "a setting writes --tp-size already"),
        (("--tp-siz", "4"), UnknownOption, "did you mean --tp-size"),
        (("--log-requests-level", "7"), UnknownOption, "is one of 0, 1, 2, 3"),
        (("--log-level",), UnknownOption, "takes 1 value, not 0"),
        (("--schedule-policy", "lpm"), SettingsConflict, "not with lpm"),
        (("--schedule-policy=lpm",), SettingsConflict, "not with lpm"),
        (("--schedule-policy", "lof", "--port", "1"), ConfigError, "--port would appear twice"),
        (("--grpc-port", "30001"), SettingsConflict, "gRPC port checks no key"),
    ],
)
def test_further_arguments_that_cannot_work_are_refused(
    extra: tuple[str, ...], error: type[ConfigError], told: str
) -> None:
    with pytest.raises(error, match=told):
        rendered(SGLANG, launch_of(extra_arguments=extra))


def test_further_arguments_are_passed_on_to_a_release_whose_parser_was_read() -> None:
    passed = ("--log-level", "warning")
    assert rendered(SGLANG, launch_of(extra_arguments=passed)).command[-2:] == passed
    with pytest.raises(UnknownOption, match=r"not of 0.4.0"):
        rendered(SGLANG, launch_of(version="0.4.0"))


@pytest.mark.parametrize(
    ("speculation", "told"),
    [
        ({"draft_model": ""}, "name its folder"),
        ({"topk": 4}, "set topk = 1, or adaptive = false"),
        ({"topk": 4, "adaptive": False}, "the number of tree tokens"),
        ({"draft_tokens": 9}, "a chain of"),
        ({"algorithm": "ngram", "draft_model": ""}, "heads only"),
    ],
)
def test_speculation_that_cannot_work_is_refused(speculation: dict[str, Any], told: str) -> None:
    config = LaunchSpeculation(**{"draft_model": "/models/head", **speculation})
    with pytest.raises(SettingsConflict, match=told):
        rendered(SGLANG, launch_of(speculation=config), speculation=True)
