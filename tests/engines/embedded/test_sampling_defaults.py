"""How requests are sampled that say nothing of it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from contracts.errors import ConfigError
from engines.embedded.config import EngineConfig
from engines.embedded.sampling_defaults import SamplingDefaults, sampling_defaults
from slipstream import fetched_model, fleet
from slipstream.model_folder import ModelFolder


def folder(tmp_path: Path, **generation: object) -> str:
    (tmp_path / "generation_config.json").write_text(json.dumps(generation))
    return str(tmp_path)


def test_the_models_own_file_says_how(tmp_path: Path) -> None:
    model = folder(tmp_path, do_sample=True, temperature=0.6, top_p=0.9, eos_token_id=[1, 2])
    assert sampling_defaults(EngineConfig(model=model)) == SamplingDefaults(0.6, 0.9)
    settings = EngineConfig(model=model, temperature=0.0)
    assert sampling_defaults(settings) == SamplingDefaults(0.0, 0.9), "settings come first"


def test_a_model_that_says_nothing_is_sampled_plainly(tmp_path: Path) -> None:
    assert sampling_defaults(EngineConfig(model=str(tmp_path))) == SamplingDefaults(1.0, 1.0)
    (tmp_path / "one.gguf").touch()
    assert sampling_defaults(EngineConfig(model=str(tmp_path / "one.gguf"))) == SamplingDefaults(1.0, 1.0)
    assert sampling_defaults(EngineConfig(model=folder(tmp_path, do_sample=False))) == SamplingDefaults(1.0, 1.0)


@pytest.mark.parametrize("generation", [{"temperature": -1}, {"top_p": 0}, {"top_p": "much"}])
def test_a_file_that_makes_no_sense_stops_the_start(tmp_path: Path, generation: dict[str, object]) -> None:
    with pytest.raises(ConfigError, match=r"generation_config\.json: .*set engine\.temperature and engine\.top_p"):
        sampling_defaults(EngineConfig(model=folder(tmp_path, **generation)))


@pytest.mark.parametrize(
    ("given", "temperature", "penalty"), [(None, None, 0.3), (None, 0.0, 0.0), (0.0, None, 0.0), (-1.0, 0.5, -1.0)]
)
def test_a_request_with_a_temperature_gets_no_penalty(
    tmp_path: Path, given: float | None, temperature: float | None, penalty: float
) -> None:
    defaults = sampling_defaults(EngineConfig(model=str(tmp_path), frequency_penalty=0.3))
    assert defaults.frequency_penalty_of(given, temperature) == penalty


def test_the_fetched_model_has_defaults_of_its_own(tmp_path: Path) -> None:
    made = ModelFolder(tmp_path / f"{fetched_model.NAME}.gguf", fetched_model.NAME, 8_192, "bfloat16")
    engine = fleet._engine(EngineConfig(), made, 0, "off")
    assert (engine.temperature, engine.top_p) == (fetched_model.TEMPERATURE, fetched_model.TOP_P)
    engine = fleet._engine(EngineConfig(temperature=1.0), made, 0, "off")
    assert (engine.temperature, engine.top_p) == (1.0, fetched_model.TOP_P)
    assert (engine.frequency_penalty, engine.kv.cached_bytes) == (
        fetched_model.FREQUENCY_PENALTY,
        fetched_model.CACHED_BYTES,
    )
    other = ModelFolder(tmp_path / "other", "other", 8_192, "bfloat16")
    assert fleet._engine(EngineConfig(), other, 0, "off").temperature is None
