"""A model's version tells engines apart that answer differently: by their settings, and by their checkpoint's files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec

from slipstream.engine_identity import EngineIdentity
from slipstream.settings import load


def identity(folder: Path, checkpoint: Path, defaults: str = "", **engine: Any) -> dict[str, str]:
    """Of the pool `p`, whose engines serve the checkpoint with these settings."""
    lines = "".join(f"{name} = {json.dumps(value)}\n" for name, value in {"model": str(checkpoint), **engine}.items())
    file = folder / "slipstream.toml"
    file.write_text(
        f'[local]\ndata = "{folder / "data"}"\n[engine]\n{defaults}\n'
        f'[[pools]]\nname = "p"\ndriver = "embedded"\n[pools.engine]\n{lines}'
        '[[models]]\nname = "m"\ntier = "chat"\npool = "p"\ncontext_tokens = 1024\n'
    )
    return EngineIdentity(load(file)).of("p")


def test_settings_and_files_that_shape_answers_change_it_and_ports_do_not(tmp_path: Path) -> None:
    checkpoint = tmp_path / "model"
    checkpoint.mkdir()
    (checkpoint / "config.json").write_bytes(msgspec.json.encode({"layers": 2}))
    (checkpoint / "weights.safetensors").write_bytes(b"\0" * 100)
    before = identity(tmp_path, checkpoint)
    assert set(before) == {"engine", "checkpoint"}
    assert identity(tmp_path, checkpoint, port=31_000) == before
    assert identity(tmp_path, checkpoint, "port = 31000") == before
    assert identity(tmp_path, checkpoint, 'dtype = "float32"') != before
    rounded = identity(tmp_path, checkpoint, quantization="int8")
    assert (rounded["engine"] != before["engine"], rounded["checkpoint"]) == (True, before["checkpoint"])
    (checkpoint / "chat_template.jinja").write_text("{{ messages }}")
    templated = identity(tmp_path, checkpoint)
    assert (templated["engine"], templated["checkpoint"] != before["checkpoint"]) == (before["engine"], True)


def test_of_engines_that_the_settings_do_not_start_nothing_is_known(tmp_path: Path) -> None:
    file = tmp_path / "slipstream.toml"
    file.write_text(f'[local]\ndata = "{tmp_path / "data"}"\n')
    assert EngineIdentity(load(file)).of("elsewhere") == {}
    assert EngineIdentity(load(file)).of("gone") == {}
