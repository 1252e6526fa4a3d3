"""What is rendered for vLLM, against the list of options that its own parser gave."""

from __future__ import annotations

import itertools
import json

import pytest

from contracts.errors import ConfigError
from tests.tools.launch.launched import HEAD, KEY_FILE, launch_of, options_of, pool_of, rendered
from tools.launch.config import LaunchSpeculation
from tools.launch.options.known import known_options

VLLM = pool_of("vllm")


def test_every_option_is_the_engines_own() -> None:
    options = known_options("vllm")
    for speculation in (False, True):
        spec = rendered(VLLM, launch_of(speculation=HEAD), speculation)
        assert {each.name for each in spec.arguments} <= set(options.options)
        assert spec.command[:3] == ("vllm", "serve", "/models/coder")


def test_the_key_is_a_variable_that_is_read_where_the_engine_runs() -> None:
    spec = rendered(VLLM, launch_of())
    key = next(each for each in spec.environment if each.name == "VLLM_API_KEY")
    assert (key.value, key.secret) == (f"$(cat {KEY_FILE})", True)
    with pytest.raises(ConfigError, match="never appears on a command line"):
        rendered(VLLM, launch_of(extra_arguments=("--api-key", "sk-1")))


def test_aborts_by_id_need_a_flag() -> None:
    assert "--enable-scale-out" in options_of(rendered(pool_of("vllm", abort_by_id=True), launch_of()))
    spec = rendered(VLLM, launch_of())
    assert "--enable-scale-out" not in options_of(spec)
    assert any("abort_by_id" in note for note in spec.notes)


def test_adapters_have_places() -> None:
    spec = rendered(pool_of("vllm", max_adapters=16), launch_of())
    assert options_of(spec)["--max-cpu-loras"] == ("16",)
    assert ("VLLM_ALLOW_RUNTIME_LORA_UPDATING", "1") in {(each.name, each.value) for each in spec.environment}


def test_every_batch_has_a_number_of_drafts() -> None:
    config = json.loads(
        options_of(rendered(VLLM, launch_of(speculation=HEAD), speculation=True))["--speculative-config"][0]
    )
    ranges = config["num_speculative_tokens_per_batch_size"]
    assert ranges[0][0] == 1
    assert ranges[-1][1] == 32
    assert all(one[1] + 1 == other[0] for one, other in itertools.pairwise(ranges))
    fixed = LaunchSpeculation(draft_model="/h", adaptive=False)
    options = options_of(rendered(VLLM, launch_of(speculation=fixed), speculation=True))
    assert "num_speculative_tokens_per_batch_size" not in options["--speculative-config"][0]
