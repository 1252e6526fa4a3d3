"""`config check --probe` and `up --probe` against an engine process that speaks the real wire format."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.deployment import free_port
from tests.fakes.process import FakeEngineProcess, fake_engine
from tests.fakes.tensorrt_llm import fake_tensorrt_llm
from tests.fakes.tensorrt_llm_front import fake_front
from tests.slipstream.deployment import WITHOUT_ENGINES, run, run_here


@pytest.fixture
async def engine() -> AsyncIterator[FakeEngineProcess]:
    """Serves `fake` with 2,048 tokens to whoever has the key."""
    async with fake_engine("sk-right") as running:
        yield running


def _settings(url: str, *, driver: str = "openai", engine_model: str = "fake", context_tokens: int = 2_048) -> str:
    return (
        WITHOUT_ENGINES.replace("http://127.0.0.1:9", url)
        .replace('driver = "openai"', f'driver = "{driver}"\napi_key_env = "THE_KEY"')
        .replace("context_tokens = 1000", f'engine_model = "{engine_model}"\ncontext_tokens = {context_tokens}')
    )


@pytest.mark.parametrize("driver", ["openai", "sglang"])
async def test_an_engine_that_is_as_the_settings_say_passes(
    driver: str, engine: FakeEngineProcess, tmp_path: Path
) -> None:
    (tmp_path / "s.toml").write_text(_settings(engine.url, driver=driver))
    environment = {"THE_KEY": "sk-right", "SLIPSTREAM_LOCAL__DATA": str(tmp_path / "data")}
    command = ("config", "check", "--probe", "--config", str(tmp_path / "s.toml"))
    checked = await asyncio.to_thread(run_here, *command, env=environment)
    told = "1 engine matches the settings\nsettings are valid\n"
    assert (checked.returncode, checked.stdout) == (0, told)
    assert checked.stderr.splitlines()[0].startswith("warning: models without `tokenizer`: elsewhere;")
    assert checked.stderr.count("\n") == 1
    assert not (tmp_path / "data").exists()


async def test_what_an_engine_lacks_is_said_and_stops_up(engine: FakeEngineProcess, tmp_path: Path) -> None:
    file = tmp_path / "s.toml"
    for key, change, said in (
        ("sk-wrong", {}, "refuses the key (status 401); see the pool's api_key_file and api_key_env"),
        (
            "sk-right",
            {"engine_model": "elsewhere"},
            "serves 'fake', not 'elsewhere'; set models.elsewhere.engine_model to the name it serves",
        ),
        ("sk-right", {"context_tokens": 4_096}, "accepts 2,048 tokens of 'fake', but its model has 4,096; lower the"),
    ):
        file.write_text(_settings(engine.url, **change))
        environment = {"THE_KEY": key, "SLIPSTREAM_LOCAL__DATA": str(tmp_path / "data")}
        sentence = f"slipstream: pools.elsewhere.replicas.elsewhere-1: {engine.url} {said}"
        check = ("config", "check", "--probe", "--config", str(file))
        checked = await asyncio.to_thread(run_here, *check, env=environment)
        assert (checked.returncode, checked.stdout) == (1, "")
        assert checked.stderr.startswith(sentence)
    port = ("--port", str(free_port()))
    started = await asyncio.to_thread(run, "up", "--probe", "--config", str(file), *port, env=environment)
    assert (started.returncode, started.stdout) == (2, "")
    assert started.stderr.startswith(sentence)


@pytest.mark.parametrize("front", [True, False])
async def test_trtllm_serve_passes_though_it_lists_another_name_and_its_front_none(front: bool, tmp_path: Path) -> None:
    async with fake_front("1.4", [], []) if front else fake_tensorrt_llm("1.4") as (_, url):
        (tmp_path / "s.toml").write_text(_settings(url, driver="tensorrt_llm"))
        environment = {"THE_KEY": "sk-any", "SLIPSTREAM_LOCAL__DATA": str(tmp_path / "data")}
        command = ("config", "check", "--probe", "--config", str(tmp_path / "s.toml"))
        checked = await asyncio.to_thread(run_here, *command, env=environment)
    assert (checked.returncode, checked.stdout) == (0, "1 engine matches the settings\nsettings are valid\n")


def test_an_engine_that_does_not_answer_is_named(tmp_path: Path) -> None:
    file, url = tmp_path / "s.toml", f"http://127.0.0.1:{free_port()}"
    file.write_text(_settings(url))
    environment = {"THE_KEY": "sk-right", "SLIPSTREAM_LOCAL__DATA": str(tmp_path / "data")}
    checked = run_here("config", "check", "--probe", "--config", str(file), env=environment)
    assert (checked.returncode, checked.stdout) == (1, "")
    assert checked.stderr.startswith(f"slipstream: pools.elsewhere.replicas.elsewhere-1: {url}: ")
    assert "cannot be reached" in checked.stderr
