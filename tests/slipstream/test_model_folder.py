"""A model folder that will not do is refused in one line, before anything is started."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import msgspec
import pytest

from contracts.errors import ConfigError
from contracts.fill_in_the_middle import FillInTheMiddle
from engines.embedded.config import EngineConfig, KVConfig
from engines.embedded.kv.store import KVStore
from engines.embedded.models.registry import load_model
from infra.local.config import LocalConfig
from infra.local.ports import Ports
from slipstream import fleet, local_engines, model_folder
from slipstream.local_engine_check import footprint
from slipstream.machine import Machine
from slipstream.model_folder import SHIPPED, ModelFolder
from slipstream.settings import Settings, load
from tests.engines.gguf.tiny_gguf import write_gguf


def _copy(tmp_path: Path) -> Path:
    """A folder like the shipped one, with an empty file in place of the weights."""
    copy = tmp_path / "my-model"
    shutil.copytree(SHIPPED / "slipstream-chat", copy, ignore=shutil.ignore_patterns("*.safetensors"))
    (copy / "model.safetensors").touch()
    return copy


def _read(path: Path) -> ModelFolder:
    return model_folder.read(str(path), "slipstream-chat", "local.chat_model", needs_chat_template=True)


def test_the_shipped_models_are_read() -> None:
    chat = model_folder.read(None, "slipstream-chat", "local.chat_model", needs_chat_template=True)
    code = model_folder.read(None, "slipstream-code", "local.code_model", needs_chat_template=False)
    assert (chat.name, chat.context_tokens) == ("slipstream-chat", 4608)
    assert (code.name, code.context_tokens) == ("slipstream-code", 8192)
    assert json.loads((code.path / "tokenizer_config.json").read_text())["fim_order"] == "spm"


@pytest.mark.parametrize(
    ("file", "content", "message"),
    [
        ("config.json", None, r".*my-model has no config\.json"),
        ("tokenizer.json", None, r".*my-model has no tokenizer\.json"),
        ("model.safetensors", None, r".*my-model has no .\.safetensors"),
        ("config.json", "{", r".*config\.json"),
        (
            "config.json",
            '{"architectures": ["MambaForCausalLM"], "max_position_embeddings": 5}',
            ".*architecture Mamba",
        ),
        ("tokenizer_config.json", "{}", ".*no chat template"),
    ],
)
def test_what_a_folder_lacks_is_named(tmp_path: Path, file: str, content: str | None, message: str) -> None:
    copy = _copy(tmp_path)
    if content is None:
        (copy / file).unlink()
    else:
        (copy / file).write_text(content)
    with pytest.raises(ConfigError, match=rf"^local\.chat_model: {message}"):
        _read(copy)


def test_a_folder_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"local\.chat_model: .*absent is not a folder and not a GGUF file"):
        _read(tmp_path / "absent")


def test_a_template_may_be_a_file_of_its_own(tmp_path: Path) -> None:
    copy = _copy(tmp_path)
    (copy / "tokenizer_config.json").write_text("{}")
    (copy / "chat_template.jinja").write_text("{{ messages }}")
    assert _read(copy).name == "my-model"


def test_every_replica_has_a_port_and_an_id_of_its_own(tmp_path: Path) -> None:
    settings = Settings(local=LocalConfig(chat_replicas=3), engine=EngineConfig(context_tokens=512))
    planned, engines = local_engines.planned(settings)
    engines = local_engines.placed(engines, Ports(tmp_path / "ports.json"))
    made = local_engines.with_replicas(planned, engines)
    assert len({engine.config.port for engine in engines}) == 4
    assert [model.context_tokens for model in made.models] == [512, 512]
    ids = [replica.id for pool in made.pools for replica in pool.replicas]
    assert len(ids) == len(set(ids)) == 4


def test_the_engines_of_up_have_the_price_that_the_page_of_objectives_shows(tmp_path: Path) -> None:
    settings = tmp_path / "slipstream.toml"
    loaded = []
    page = (Path(__file__).parents[2] / "docs" / "concepts" / "slo.md").read_text()
    snippets = re.findall(r"```toml\n(.*?)```", page, re.DOTALL)
    for snippet in snippets:
        if "price_per_replica_hour" in snippet:
            settings.write_text(snippet)
            loaded.append(load(settings))
    own, named = loaded
    made = fleet.with_models(own)
    assert [pool.price_per_replica_hour for pool in made.pools] == [2.5, 2.5]
    assert [pool.price_per_replica_hour for pool in named.pools] == [2.5]


def test_one_models_context_is_cut_and_the_others_is_not() -> None:
    settings = Settings(local=LocalConfig(chat_context_tokens=1_024), engine=EngineConfig(context_tokens=4_000))
    made, engines = local_engines.planned(settings)
    assert [model.context_tokens for model in made.models] == [1_024, 4_000]
    assert [engine.config.context_tokens for engine in engines] == [1_024, 4_000]


@pytest.mark.parametrize(("name", "most"), [("chat", 4_608), ("code", 8_192)])
def test_a_context_beyond_the_models_own_is_refused_and_not_cut(name: str, most: int) -> None:
    field = f"{name}_context_tokens"
    local_engines.planned(Settings(local=msgspec.structs.replace(LocalConfig(), **{field: most})))
    with pytest.raises(
        ConfigError, match=rf"local\.{field}: {most + 1:,}, but slipstream-{name} supports only {most:,}"
    ):
        local_engines.planned(Settings(local=msgspec.structs.replace(LocalConfig(), **{field: most + 1})))


def test_a_context_that_memory_does_not_hold_names_the_settings_and_the_flags() -> None:
    model = load_model(SHIPPED / "slipstream-code", "bfloat16")
    with pytest.raises(ConfigError) as refused:
        KVStore(model.config, KVConfig(budget_bytes=4_000_000), model.dtype, 8_192)
    sentence = refused.value.message
    found = re.search(r"4000000 bytes hold ([\d,]+) tokens .* need 8,192\. Give at least (\d+) \(--kv-bud", sentence)
    assert found is not None, sentence
    assert f"a context of {found[1]} at most (engine.context_tokens, or --context-tokens; " in sentence
    assert "--chat-context-tokens or --code-context-tokens" in sentence
    KVStore(model.config, KVConfig(budget_bytes=int(found[2])), model.dtype, 8_192)


def test_models_have_the_aliases_and_fill_gaps_as_the_settings_say() -> None:
    fim = FillInTheMiddle(lines="single", reuse=False)
    config = LocalConfig(chat_aliases=("assistant",), code_aliases=("copilot-codex", "other"), fim=fim)
    chat, code = fleet.with_models(Settings(local=config)).models
    assert (chat.aliases, chat.fim) == (("assistant",), FillInTheMiddle())
    assert (code.aliases, code.fim) == (("copilot-codex", "other"), fim)


def test_a_gguf_file_is_a_model_too(tmp_path: Path) -> None:
    file = _read(write_gguf(tmp_path / "my-model.Q8_0.gguf", kind="Q8_0"))
    assert (file.name, file.context_tokens, file.dtype) == ("my-model.Q8_0", 512, "bfloat16")


def test_a_gguf_file_that_will_not_do_is_refused_in_one_line(tmp_path: Path) -> None:
    for changed, message in (
        ({"tokenizer.chat_template": None}, "has no chat template"),
        ({"pre": "tekken"}, "tokenizer.ggml.pre is tekken"),
        ({"context_length": 0}, "context_length must be at least 1"),
        ({"general.architecture": "gemma2"}, "general.architecture is gemma2"),
    ):
        path = write_gguf(tmp_path / "model.gguf", changed=changed)
        with pytest.raises(ConfigError, match=rf"^local\.chat_model: \S+/model\.gguf.*{message}"):
            _read(path)


def test_a_file_with_few_bits_is_planned_as_8_bits(tmp_path: Path) -> None:
    sizes = []
    for kind in ("F16", "Q4_1"):
        path = write_gguf(tmp_path / f"{kind}.gguf", kind=kind)
        settings = Settings(local=LocalConfig(chat_model=str(path)))
        _, engines = local_engines.planned(settings)
        machine = Machine(cores=2, memory_bytes=1 << 34, gpu_memory_bytes=0, native_bfloat16=True)
        sizes.append(footprint(engines[0], machine).weights_bytes)
    assert sizes[0] == 2 * sizes[1]
