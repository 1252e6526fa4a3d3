"""What is rendered for TensorRT-LLM, of both generations."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from contracts.errors import ConfigError
from tests.tools.launch.launched import HEAD, launch_of, options_of, pool_of, rendered
from tools.launch.config import LaunchSpeculation
from tools.launch.options.tensorrt_llm import KEYS
from tools.launch.spec import LaunchSpec

OPEN = pool_of("tensorrt_llm", api_key_file="", api_key_required=False)
MODELS = Path(__file__).parents[3] / "models"


def yaml_of(spec: LaunchSpec) -> Any:
    return yaml.safe_load(spec.files[0].content)


def paths(tree: Any, before: str = "") -> set[str]:
    """Every key; those of a schedule are batches, no names."""
    if not isinstance(tree, dict) or all(isinstance(key, int) for key in tree):
        return set()
    return {before + key for key in tree}.union(*(paths(value, f"{before}{key}.") for key, value in tree.items()))


@pytest.mark.parametrize("version", ["", "1.2.1", "1.3.0", "1.4.0rc1"])
def test_every_key_was_read_in_this_release(version: str) -> None:
    for role, speculation in itertools.product(("unified", "prefill", "decode"), (False, True)):
        pool = msgspec.structs.replace(OPEN, role=role)
        spec = rendered(pool, launch_of(version=version, speculation=HEAD), speculation)
        for path in paths(yaml_of(spec)):
            since, read = KEYS[path]
            assert read, path
            assert since <= (int((version or "1.2")[0]), int((version or "1.2")[2])), path


def test_the_levers_of_the_documents_are_keys() -> None:
    told = yaml_of(rendered(OPEN, launch_of(version="1.4.0rc1", speculation=HEAD), speculation=True, cards=4))
    assert told["tensor_parallel_size"] == 4
    assert told["max_batch_size"] == 32
    assert told["max_num_tokens"] == 8_192
    assert told["kv_cache_config"]["dtype"] == "fp8"
    assert told["kv_cache_config"]["enable_block_reuse"] is True
    assert told["speculative_config"]["decoding_type"] == "Eagle3"
    schedule = told["speculative_config"]["draft_len_schedule"]
    assert schedule[min(schedule)] == told["speculative_config"]["max_draft_len"]
    assert list(schedule.values()) == sorted(schedule.values(), reverse=True)


def test_a_schedule_is_written_only_where_its_keys_mean_the_largest_batch() -> None:
    told = yaml_of(rendered(OPEN, launch_of(version="1.3.0", speculation=HEAD), speculation=True))["speculative_config"]
    assert told["decoding_type"] == "Eagle3"
    assert "max_concurrency" in told
    assert "draft_len_schedule" not in told


def test_the_older_release_has_other_names_and_one_batch_beyond_which_nothing_is_drafted() -> None:
    spec = rendered(OPEN, launch_of(speculation=HEAD), speculation=True)
    told = yaml_of(spec)["speculative_config"]
    assert told["decoding_type"] == "Eagle"
    assert told["speculative_model_dir"] == "/models/head"
    assert "draft_len_schedule" not in told
    assert told["max_concurrency"] >= 1
    assert "--extra_llm_api_options" in options_of(spec)
    assert "--no-telemetry" not in options_of(spec)


@pytest.mark.parametrize("version", ["1.2.1", "1.4.0rc1"])
def test_it_is_told_which_layers_the_head_reads(version: str) -> None:
    """By itself it would read others of a model with less than eight, and refuses one with five."""
    for name, layers in (("slipstream-chat", [0, 1, 2]), ("slipstream-code", [0, 2, 4])):
        model = MODELS / name
        speculation = LaunchSpeculation(draft_model=str(model / "draft"))
        launch = launch_of(model=str(model), shape="", speculation=speculation, version=version)
        told = yaml_of(rendered(OPEN, launch, speculation=True, context_tokens=4_096))["speculative_config"]
        assert told["eagle3_layers_to_capture"] == layers
    unread = yaml_of(rendered(OPEN, launch_of(speculation=HEAD, version=version), speculation=True))
    assert "eagle3_layers_to_capture" not in unread["speculative_config"]


@pytest.mark.parametrize(
    ("version", "counted", "told"),
    [
        ("1.2.1", True, "router.probe_timeout_s = 3"),
        ("1.3.0", None, "return_perf_metrics is left out"),
        ("1.3.0rc29", None, "no reconciliation"),
        ("1.4.0rc1", True, ""),
    ],
)
def test_counters_are_asked_for_where_they_cost_no_load(version: str, counted: bool | None, told: str) -> None:
    spec = rendered(OPEN, launch_of(version=version))
    assert yaml_of(spec).get("return_perf_metrics") is counted
    notes = [note for note in spec.notes if "router.probe_timeout_s" in note or "return_perf_metrics" in note]
    assert [told in note for note in notes] == ([True] if told else [])


def test_a_fraction_of_what_weights_leave_is_the_memory_that_was_planned() -> None:
    spec = rendered(OPEN, launch_of(shape="llama-70b"), cards=2)
    fraction = yaml_of(spec)["kv_cache_config"]["free_gpu_memory_fraction"]
    assert fraction * (160 - 70.6) == pytest.approx(160 * 0.9 - 70.6, abs=1)


def test_a_batch_of_drafts_is_checked_in_one_step() -> None:
    told = yaml_of(rendered(OPEN, launch_of(speculation=HEAD, chunk_tokens=64), speculation=True))
    drafts = told["speculative_config"]["max_draft_len"]
    assert told["max_num_tokens"] == 32 * (drafts + 1) > 64


def test_who_asks_for_a_key_has_something_in_front_that_checks_it() -> None:
    assert options_of(rendered(pool_of("tensorrt_llm"), launch_of()))["--host"] == ("127.0.0.1",)
    assert options_of(rendered(OPEN, launch_of()))["--host"] == ("10.0.0.5",)


@pytest.mark.parametrize(
    ("pool", "launch", "told"),
    [
        ({"request_priorities": True}, {}, "answers 400 to a request with a priority"),
        ({}, {"speculation": LaunchSpeculation(algorithm="eagle", draft_model="/h")}, "use eagle3"),
        (
            {},
            {"speculation": LaunchSpeculation(draft_model="/h", topk=4, draft_tokens=8, adaptive=False)},
            "chains only",
        ),
        ({}, {"attention": "fa3"}, "its own kernels"),
        ({}, {"model": str(MODELS / "slipstream-code"), "shape": "", "weights": "fp8"}, "rounds no weights"),
        ({}, {"version": "0.9"}, "is no release"),
        ({"role": "prefill"}, {"transfer_backend": "fake"}, "not by fake"),
    ],
)
def test_what_it_cannot_do_is_refused(pool: dict[str, Any], launch: dict[str, Any], told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        rendered(
            pool_of("tensorrt_llm", api_key_file="", api_key_required=False, **pool),
            launch_of(**launch),
            speculation="speculation" in launch,
        )


def test_a_tree_is_one_of_newer_releases() -> None:
    tree = LaunchSpeculation(draft_model="/h", topk=4, draft_tokens=8, adaptive=False)
    told = yaml_of(rendered(OPEN, launch_of(version="1.4.0", speculation=tree), speculation=True))["speculative_config"]
    assert told["use_dynamic_tree"] is True
    assert told["dynamic_tree_max_topK"] == 4
