"""Pools own their settings: what a pool's `engine` says goes before `[engine]`, field by field."""

from __future__ import annotations

from pathlib import Path

import pytest

from contracts.desired_state import Pool
from contracts.errors import ConfigError
from engines.embedded.config import EngineConfig, KVConfig
from slipstream import toml
from slipstream.settings import Settings, load

MODEL = '[[models]]\nname = "m"\ntier = "chat"\npool = "own"\ncontext_tokens = 512\n'
OWN = '[[pools]]\nname = "own"\ndriver = "embedded"\n'


def _load(folder: Path, text: str) -> Settings:
    file = folder / "s.toml"
    file.write_text(text)
    return load(file)


def test_a_pools_engine_says_what_it_gives_and_the_section_the_rest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLIPSTREAM_ENGINE__SCHEDULER__MAX_RUNNING", "7")
    of_all = "[engine]\nthreads = 2\nkv = { budget_bytes = 1000, cached_bytes = 32 }\n"
    given = _load(tmp_path, of_all + MODEL + OWN + 'engine = { model = "x", kv = { budget_bytes = 2000 } }\n')
    [pool] = given.pools
    assert pool.engine is not None
    assert (pool.engine.model, pool.engine.threads, pool.engine.scheduler.max_running) == ("x", 2, 7)
    assert pool.engine.kv == KVConfig(budget_bytes=2000, cached_bytes=32)
    assert (given.engine.model, given.engine.kv.budget_bytes) == ("", 1000)
    assert _load(tmp_path, toml.dump(given)).pools == given.pools


@pytest.mark.parametrize(
    ("engine", "sentence"),
    [
        (
            "{ thread = 2 }",
            r"pools\[0\]\.engine\.thread: unknown setting .*, did you mean pools\[0\]\.engine\.threads\?",
        ),
        ("{ kv = { bytes = 1 } }", r"pools\[0\]\.engine\.kv\.bytes: unknown setting"),
        ("{ threads = 999 }", r"pools\[0\]\.engine\.threads: .*<= 256.*got 999"),
        ('{ device = "tpu" }', r"pools\[0\]\.engine\.device: 'tpu' is not one of: cpu, cuda, auto"),
    ],
)
def test_what_an_engine_cannot_be_is_refused_by_name(engine: str, sentence: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=sentence):
        _load(tmp_path, MODEL + OWN + f"engine = {engine}\n")


def test_the_desired_state_knows_nothing_of_how_engines_are_started(tmp_path: Path) -> None:
    launched = 'hardware = "H100"\ntensor_parallel = 2\nengine = {}\n'
    of_all = "[engine]\nthreads = 2\n" + MODEL + OWN
    for text, engine, of_pool in (
        (launched, EngineConfig(threads=2), Pool("own", "embedded", hardware="H100", tensor_parallel=2)),
        ("", None, Pool("own", "embedded")),
    ):
        given = _load(tmp_path, of_all + text)
        assert [pool.engine for pool in given.pools] == [engine]
        [desired] = given.desired_pools
        assert type(desired) is Pool
        assert desired == of_pool


def test_names_that_would_be_lines_of_a_rendered_script_are_refused(tmp_path: Path) -> None:
    replica = '[[pools.replicas]]\nid = "{}"\nurl = "http://127.0.0.1:1"\n'
    for pool, name in (("own", "a\\ntouch x"), ("own\\ntouch x", "a")):
        text = (MODEL + OWN.replace("embedded", "sglang")).replace('"own"', f'"{pool}"') + replica.format(name)
        with pytest.raises(ConfigError, match="printable characters only"):
            _load(tmp_path, text)
