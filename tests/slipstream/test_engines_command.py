"""`slipstream tools engines render`: from a settings file to commands, and the page that shows them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml
from click.testing import CliRunner

from contracts.desired_state import Replica
from contracts.errors import ConfigError
from engines.performance.catalog import H100, LLAMA_70B
from engines.performance.precision import Precision
from slipstream.__main__ import cli
from slipstream.launch_rendering import launches, notes_of, require_launches
from slipstream.printed_page import SHOWN, with_output
from slipstream.settings import Settings, load
from tests.deployment import ROOT
from tools.launch.config import LaunchDisaggregated, LaunchSpeculation, LaunchWorkload
from tools.launch.model_context import ContextBeyondModel
from tools.launch.pair import HalvesDiffer
from tools.launch.render import CONTEXT_NOT_COMPARED
from tools.planning.plan import Hardware, plan
from tools.planning.workload import Promise, PromiseOutOfReach, Workload

PAGE = ROOT / "docs" / "guides" / "launch-engines.md"
EXAMPLE = ROOT / "docs" / "guides" / "launch-engines.toml"


def run(*words: str) -> str:
    result = CliRunner().invoke(
        cli, ["tools", "engines", "render", *words, "--config", str(EXAMPLE)], catch_exceptions=False
    )
    assert result.exit_code == 0, result.output
    return result.stdout


def changed(pool: str, **given: Any) -> Settings:
    """The example with other settings of one pool's `launch`."""
    settings = load(EXAMPLE)
    pools = tuple(
        msgspec.structs.replace(each, launch=msgspec.structs.replace(each.launch, **given))
        if each.name == pool
        else each
        for each in settings.pools
        if each.launch is not None
    )
    return msgspec.structs.replace(settings, pools=pools)


def with_cards(settings: Settings, pool: str, cards: int) -> Settings:
    """The settings with so many cards for each of a pool's replicas."""
    pools = [
        msgspec.structs.replace(each, tensor_parallel=cards) if each.name == pool else each for each in settings.pools
    ]
    return msgspec.structs.replace(settings, pools=tuple(pools))


def command(settings: Settings, pool: str) -> dict[str, tuple[str, ...]]:
    (spec,) = launches(settings, pool, "", "off")
    return {each.name: each.values for each in spec.arguments}


def test_the_page_shows_what_is_printed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    page = PAGE.read_text()
    assert len(SHOWN.findall(page)) == page.count("```text") == 1
    assert with_output(page) == page, "run `make docs`"
    assert "\n".join(re.findall(r"^```toml\n(.*?)^```$", page, re.M | re.S)) in EXAMPLE.read_text()


def test_the_other_commands_of_the_page_run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Where the page says: in the repository's root, without a settings file of one's own."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "docs" / "guides").mkdir(parents=True)
    (tmp_path / "docs" / "guides" / EXAMPLE.name).write_text(EXAMPLE.read_text())
    (block,) = (each for each in re.findall(r"^```sh\n(.*?)^```$", PAGE.read_text(), re.M | re.S) if "--format" in each)
    for line in block.splitlines():
        result = CliRunner().invoke(cli, line.partition("#")[0].split()[1:], catch_exceptions=False)
        assert result.exit_code == 0, result.output
    script = tmp_path / "launch" / "chat-0.speculation-on.sh"
    assert script.stat().st_mode & 0o111
    assert (tmp_path / "launch" / "chat-0.speculation-on.yaml").read_text() in script.read_text()


@pytest.mark.parametrize("cards", [2, 4, 8])
def test_the_batch_is_the_planners(cards: int) -> None:
    asked = Workload(50.0, 3_000, 400, 0.5, longest_tokens=32_768)
    planned = plan(LLAMA_70B, Hardware(H100, Precision.FP8, cards, 2.0, 5e10), asked, Promise(0.7, 0.04))
    (spec,) = launches(with_cards(load(EXAMPLE), "chat", cards), "chat", "", "off")
    point, knee = planned.knee.operated_at.batch, planned.knee.point.batch
    assert point < knee
    assert f"max_batch_size: {point}  # one notch under the knee at {knee}, beyond which the" in spec.files[0].content
    assert f"max_num_tokens: {planned.chunk_tokens} " in spec.files[0].content


def test_a_replica_drafts_where_it_says_so_and_both_ways_where_both_are_asked() -> None:
    assert "speculation on" in run("autocomplete")
    both = msgspec.json.decode(run("autocomplete", "--speculation", "both", "--format", "json"))["launches"]
    assert [each["speculation"] for each in both] == [False, True]
    assert both[0]["command"][:3] == ["python3", "-m", "sglang.launch_server"]


def test_the_cards_are_the_fewest_that_keep_the_promise() -> None:
    asked = load(EXAMPLE).pools[1].launch
    assert asked is not None
    assert asked.workload is not None
    slack = msgspec.structs.replace(asked.workload, ttft_ms=5_000, tpot_ms=200)
    (spec,) = launches(changed("chat", workload=slack), "chat", "", "off")
    assert "tensor_parallel_size: 2" in spec.files[0].content
    (spec,) = launches(changed("chat", workload=None), "chat", "", "off")
    assert "without a workload no promise is considered" in spec.files[0].content
    for promise in ("ttft_ms", "tpot_ms"):
        with pytest.raises(PromiseOutOfReach) as refused:
            launches(changed("chat", workload=msgspec.structs.replace(slack, **{promise: 1})), "chat", "", "off")
        assert refused.value.param == f"pools.chat.launch.workload.{promise}"
        assert refused.value.message.startswith(f"{refused.value.param}: 1; no number of replicas")


@pytest.mark.parametrize("cards", [0, 2])
def test_a_promise_out_of_reach_is_told_with_the_cards_that_were_tried_and_every_value_that_would_do(
    cards: int,
) -> None:
    asked = load(EXAMPLE).pools[1].launch
    assert asked is not None
    assert asked.workload is not None
    workload = msgspec.structs.replace(asked.workload, ttft_ms=1, tpot_ms=1)

    def settings() -> Settings:
        return with_cards(changed("chat", workload=workload), "chat", cards)

    with pytest.raises(PromiseOutOfReach) as refused:
        launches(settings(), "chat", "", "off")
    message = refused.value.message
    assert "breaks the time per token and the time to first token" in message
    assert ("more GPUs a replica" in message) is bool(cards)
    assert (
        "Tried: 2 x H100 a replica; with 2, " if cards else "Tried: 2, 4 and 8 x H100 a replica; with 8, "
    ) in message
    tpot, ttft = map(int, re.findall(r"workload\.\w+ = (\d+)", message))
    workload = msgspec.structs.replace(workload, ttft_ms=ttft, tpot_ms=tpot)
    launches(settings(), "chat", "", "off")
    for less in ({"ttft_ms": ttft - 1}, {"tpot_ms": tpot - 1}):
        workload = msgspec.structs.replace(workload, **{"ttft_ms": ttft, "tpot_ms": tpot, **less})
        with pytest.raises(PromiseOutOfReach):
            launches(settings(), "chat", "", "off")


def test_of_cards_that_cannot_share_the_heads_and_those_that_break_the_promise_the_promise_is_told(
    tmp_path: Path,
) -> None:
    odd = model_of(tmp_path, num_attention_heads=2, hidden_size=128)
    workload = LaunchWorkload(prompt_tokens=3_000, output_tokens=400, ttft_ms=0.01)
    given = {"model": odd, "shape": "", "speculation": None, "workload": workload, "weights": "fp8"}
    settings = changed("autocomplete", **given)
    model = msgspec.structs.replace(settings.models[0], context_tokens=8_192)
    settings = msgspec.structs.replace(settings, models=(model, *settings.models[1:]))
    with pytest.raises(PromiseOutOfReach, match=r"Tried: 1 and 2 x H100 a replica"):
        launches(settings, "autocomplete", "", "off")


def test_what_is_set_is_written_as_set() -> None:
    settings = with_cards(changed("autocomplete", max_running=7, chunk_tokens=512), "autocomplete", 2)
    options = command(settings, "autocomplete")
    assert options["--tp-size"] == ("2",)
    assert options["--max-running-requests"] == ("7",)
    assert options["--chunked-prefill-size"] == ("512",)


def test_a_batch_beyond_the_knee_says_what_breaks() -> None:
    for most, told in ((4_000, r"as set, beyond the knee at \d+, where the .* breaks"), (1, "as set$")):
        (spec,) = launches(changed("chat", max_running=most), "chat", "", "off")
        assert re.search(rf"^max_batch_size: {most}  # {told}", spec.files[0].content, re.M), spec.files[0].content


def test_names_that_are_not_there_and_what_is_missing_are_said() -> None:
    settings = load(EXAMPLE)
    answer = CliRunner().invoke(cli, ["tools", "engines", "render", "code", "--config", str(EXAMPLE)])
    assert isinstance(answer.exception, ConfigError)
    assert answer.exception.message == (
        f"pool: there is no 'code' in {EXAMPLE}; its pools: autocomplete, chat. Name one of them, or the file that has "
        "it with --config"
    )
    with pytest.raises(ConfigError, match=r"no file was read: there is no slipstream\.toml here"):
        launches(settings, "code", "", "")
    with pytest.raises(ConfigError, match="pool 'chat' has no replica 'chat-9'; replicas: chat-0"):
        launches(settings, "chat", "chat-9", "")
    bare = msgspec.structs.replace(settings.pools[0], launch=None)
    with pytest.raises(ConfigError, match=r"give \[pools.launch\] with its model"):
        launches(msgspec.structs.replace(settings, pools=(bare,)), "autocomplete", "", "")
    with pytest.raises(ConfigError, match="it is served by no model; name it in models"):
        launches(msgspec.structs.replace(settings, models=()), "chat", "", "")
    twice = msgspec.structs.replace(settings.models[1], name="other", aliases=())
    with pytest.raises(
        ConfigError, match="under the names chat-70b, other, and an engine has one; set their engine_model"
    ):
        launches(msgspec.structs.replace(settings, models=(*settings.models, twice)), "chat", "", "")
    with pytest.raises(
        ConfigError, match=r"its engines would accept only 4,096; shorten models.chat-70b.context_tokens"
    ):
        launches(changed("chat", context_tokens=4_096), "chat", "", "")


def model_of(folder: Path, **config: Any) -> str:
    """A folder with a shipped model's config.json, some of it changed."""
    told = msgspec.json.decode((ROOT / "models" / "slipstream-code" / "config.json").read_bytes())
    (folder / "config.json").write_bytes(msgspec.json.encode({**told, **config}))
    return str(folder)


YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 8_192}
LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "original_max_position_embeddings": 8_192}


@pytest.mark.parametrize(
    ("config", "longest"),
    [
        ({}, 8_192),
        ({"rope_scaling": YARN}, 32_768),
        ({"rope_scaling": YARN, "max_position_embeddings": 32_768}, 32_768),
        ({"rope_parameters": {**YARN, "rope_theta": 1e6}}, 32_768),
        ({"rope_scaling": {"type": "linear", "factor": 3}}, 24_576),
        ({"rope_scaling": {"type": "dynamic", "factor": 2.0, "original_max_position_embeddings": 4_096}}, 16_384),
        ({"rope_scaling": LLAMA3, "max_position_embeddings": 131_072}, 131_072),
        ({"rope_parameters": {"rope_type": "default", "rope_theta": 1e6}}, 8_192),
    ],
)
def test_a_context_beyond_the_models_own_is_refused_and_a_stretched_one_taken(
    config: dict[str, Any], longest: int, tmp_path: Path
) -> None:
    given: dict[str, Any] = {"model": model_of(tmp_path, **config), "shape": "", "speculation": None, "workload": None}

    def serving(context_tokens: int) -> Settings:
        settings = changed("autocomplete", **given)
        model = msgspec.structs.replace(settings.models[0], context_tokens=context_tokens)
        return msgspec.structs.replace(settings, models=(model, *settings.models[1:]))

    (spec,) = launches(serving(longest), "autocomplete", "", "off")
    assert str(longest) in spec.command
    assert CONTEXT_NOT_COMPARED not in spec.notes
    said = (
        f"^models.coder-8b.context_tokens: {longest + 1:,}, and .* made for {longest:,} tokens.*set at most {longest:,}"
    )
    with pytest.raises(ContextBeyondModel, match=said):
        launches(serving(longest + 1), "autocomplete", "", "off")
    given |= {"context_tokens": longest + 2}
    with pytest.raises(ContextBeyondModel, match=r"^pools\.autocomplete\.launch\.context_tokens: ") as refused:
        launches(serving(longest), "autocomplete", "", "off")
    assert refused.value.param == "pools.autocomplete.launch.context_tokens"


@pytest.mark.parametrize(
    "config", [{"max_position_embeddings": None}, {"rope_scaling": {"rope_type": "new", "factor": "long"}}]
)
def test_a_context_that_no_folder_tells_is_taken_and_said_to_be_compared_by_nobody(
    config: dict[str, Any], tmp_path: Path
) -> None:
    given = {
        "model": model_of(tmp_path, **config),
        "shape": "",
        "speculation": None,
        "workload": None,
        "context_tokens": 400_000,
    }
    (spec,) = launches(changed("autocomplete", **given), "autocomplete", "", "off")
    assert CONTEXT_NOT_COMPARED in spec.notes


def paired(decode: Mapping[str, Any], prefill: Mapping[str, Any], port: int = 9_100) -> Settings:
    """The example's SGLang pool as a pair, whose launches differ as given. The prefill engine drafts as the pool's
    does."""
    settings = load(EXAMPLE)
    model, pool = settings.models[0], settings.pools[0]
    assert pool.launch is not None
    assert pool.launch.speculation is not None
    common = {"workload": None, "speculation": msgspec.structs.replace(pool.launch.speculation, topk=1)}
    replica = Replica(id="p0", url="http://10.0.0.1:30000", bootstrap_port=port, speculation=True)
    answers = msgspec.structs.replace(
        pool,
        role="decode",
        prefill_pool="pre",
        launch=msgspec.structs.replace(pool.launch, **{**common, **decode}),
    )
    computes = msgspec.structs.replace(
        pool,
        name="pre",
        role="prefill",
        replicas=(replica,),
        launch=msgspec.structs.replace(pool.launch, **{**common, **prefill}),
    )
    return msgspec.structs.replace(settings, models=(model,), pools=(answers, computes))


NO_HEAD = {"speculation": None}


def test_halves_of_a_pair_are_rendered_by_the_roles_of_their_pools() -> None:
    settings = paired(NO_HEAD, NO_HEAD)
    (model,), (decode, prefill) = settings.models, settings.pools
    answers, computes = command(settings, decode.name), command(settings, "pre")
    assert answers["--disaggregation-mode"] == ("decode",)
    assert computes["--disaggregation-mode"] == ("prefill",)
    assert computes["--disaggregation-bootstrap-port"] == ("9100",)
    assert computes["--served-model-name"] == answers["--served-model-name"] == ("coder-8b",)
    whole = msgspec.structs.replace(
        decode, name="whole", split_pool=decode.name, role="unified", prefill_pool="", launch=decode.launch
    )
    model = msgspec.structs.replace(model, pool="whole")
    settings = msgspec.structs.replace(settings, models=(model,), pools=(decode, prefill, whole))
    served = {command(settings, name)["--served-model-name"] for name in (decode.name, "pre", "whole")}
    assert served == {("coder-8b",)}


@pytest.mark.parametrize(
    ("decode", "setting"),
    [
        ({"transfer_backend": "mooncake"}, "transfer_backend"),
        ({"kv_dtype": "bf16"}, "kv_dtype"),
        ({"weights": "bf16", "kv_dtype": "fp8"}, "weights"),
        ({"gpu": "a100", "kv_dtype": "bf16"}, "weights"),
        ({"model": "/models/coder-8b-other"}, "model"),
        ({"extra_arguments": ("--dtype", "float16")}, "extra_arguments"),
        (NO_HEAD, "speculation"),
        ({"speculation": LaunchSpeculation(draft_model="/models/another")}, "speculation"),
        ({"speculation": LaunchSpeculation(algorithm="ngram", adaptive=False)}, "speculation"),
    ],
)
@pytest.mark.parametrize("turned", [False, True])
def test_halves_of_a_pair_that_do_not_go_together_are_refused(
    decode: Mapping[str, Any], setting: str, turned: bool
) -> None:
    settings = paired({}, decode) if turned else paired(decode, {})
    for refuse in (
        lambda: launches(settings, "autocomplete", "", ""),
        lambda: launches(settings, "pre", "", ""),
        lambda: require_launches(settings),
    ):
        with pytest.raises(HalvesDiffer, match=rf"^pools\.autocomplete\.launch\.{setting}: .*pools\.pre") as refused:
            refuse()
        assert refused.value.param == f"pools.autocomplete.launch.{setting}"


def test_halves_of_a_pair_that_are_said_to_be_the_same_in_other_words_are_taken() -> None:
    require_launches(paired({"weights": "fp8", "kv_dtype": "fp8"}, {"weights": "auto", "kv_dtype": "auto"}))


def test_a_pair_drafts_on_both_halves_or_on_none() -> None:
    settings = paired({}, {})
    decode, prefill = settings.pools
    without = msgspec.structs.replace(prefill.replicas[0], speculation=False)
    settings = msgspec.structs.replace(settings, pools=(decode, msgspec.structs.replace(prefill, replicas=(without,))))
    with pytest.raises(HalvesDiffer, match=r"pools\.autocomplete and pools\.pre, code-0 .* and p0 without"):
        launches(settings, "autocomplete", "", "")


def test_a_prefill_pool_is_not_rendered_without_its_port() -> None:
    with pytest.raises(ConfigError, match=r"^pools\.pre\.replicas\.p0\.bootstrap_port: 0; it must be 1 to 65535"):
        launches(paired({}, {}, port=0), "pre", "", "")


def test_what_moves_keys_and_values_is_refused_under_its_own_name() -> None:
    pigeons = {"transfer_backend": "carrier-pigeon"}
    with pytest.raises(ConfigError, match=r"one of .*mooncake.*, not 'carrier-pigeon'") as refused:
        launches(paired(pigeons, pigeons), "pre", "", "")
    assert refused.value.param == "pools.pre.launch.transfer_backend"
    assert refused.value.message.startswith("pools.pre.launch.transfer_backend: ")


def test_an_option_of_another_driver_is_not_rendered() -> None:
    settings = load(EXAMPLE)
    pool = msgspec.structs.replace(settings.pools[0], abort_by_id=True)
    with pytest.raises(ConfigError, match=r"pools\.autocomplete\.abort_by_id: true; the driver sglang .*driver vllm"):
        launches(msgspec.structs.replace(settings, pools=(pool,)), "autocomplete", "", "")


DISAGGREGATED = LaunchDisaggregated(("http://10.0.0.21:8001", "http://10.0.0.22:8001"), ("http://10.0.0.23:8001",))


def test_a_front_of_tensorrt_llm_is_rendered_with_the_engines_of_both_halves() -> None:
    settings = changed("chat", disaggregated=DISAGGREGATED)
    one, two, writes, front = launches(settings, "chat", "", "off")
    for spec, role in ((one, "context"), (two, "context"), (writes, "generation")):
        assert ("--server_role", role) in [each.words for each in spec.arguments]
        told = yaml.safe_load(spec.files[0].content)
        assert told["cache_transceiver_config"]["backend"] == "NIXL"
        assert told.get("disable_overlap_scheduler", False) is (role == "context")
    files = [file.path for spec in (one, two, writes, front) for file in spec.files]
    assert len(set(files)) == 4
    assert front.command == ("trtllm-serve", "disaggregated", "-c", front.files[0].path)
    assert yaml.safe_load(front.files[0].content) == {
        "hostname": "10.0.0.20",
        "port": 8000,
        "context_servers": {"num_instances": 2, "urls": ["10.0.0.21:8001", "10.0.0.22:8001"]},
        "generation_servers": {"num_instances": 1, "urls": ["10.0.0.23:8001"]},
    }
    assert any("the gateway knows the front alone" in note for note in front.notes)


def test_a_front_behind_what_checks_the_key_is_reached_by_that_alone_and_its_engines_by_the_front() -> None:
    settings = changed("chat", disaggregated=DISAGGREGATED)
    pools = [msgspec.structs.replace(each, api_key_required=True) for each in settings.pools]
    *engines, front = launches(msgspec.structs.replace(settings, pools=tuple(pools)), "chat", "", "off")
    assert yaml.safe_load(front.files[0].content)["hostname"] == "127.0.0.1"
    hosts = [spec.command[spec.command.index("--host") + 1] for spec in engines]
    assert hosts == ["10.0.0.21", "10.0.0.22", "10.0.0.23"]
    assert all("checks no key" in spec.notes[-1] for spec in engines)


@pytest.mark.parametrize(
    ("pool", "context", "said"),
    [
        ("autocomplete", "http://10.0.0.21:8001", "only driver 'tensorrt_llm' has a front of its own"),
        ("chat", "10.0.0.21:8001", "write it as http://"),
        ("chat", "http://10.0.0.20:8000", "10.0.0.20:8000 is given twice"),
    ],
)
def test_a_front_that_cannot_work_is_refused(pool: str, context: str, said: str) -> None:
    halves = LaunchDisaggregated((context,), ("http://10.0.0.23:8001",))
    with pytest.raises(ConfigError, match=said):
        launches(changed(pool, disaggregated=halves), pool, "", "off")


def test_notes_are_those_of_every_command_with_the_pools_name_and_once() -> None:
    settings = load(EXAMPLE)
    told = list(notes_of(settings))
    assert len(told) == len(set(told))
    for pool in settings.pools:
        own = {note for spec in launches(settings, pool.name, "", "") for note in spec.notes}
        assert own, pool.name
        assert {note for note in told if note.startswith(f"pools.{pool.name}: ")} == {
            f"pools.{pool.name}: {note}" for note in own
        }


def test_config_check_refuses_what_could_not_be_rendered() -> None:
    require_launches(load(EXAMPLE))
    with pytest.raises(ConfigError, match="spans machines"):
        require_launches(with_cards(load(EXAMPLE), "chat", 64))
