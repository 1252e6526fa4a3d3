"""The default format in which an engine keeps a GGUF file's weights."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from engines.embedded.build import build_engine
from engines.embedded.combinations import with_quantization
from engines.embedded.config import EngineConfig, KVConfig
from engines.embedded.device import decided
from engines.embedded.service import Service
from engines.tokenizer.tokenizer import Tokenizer
from tests.engines.embedded.tiny import SHIPPED, drain, request, text
from tests.engines.gguf.tiny_gguf import write_gguf


@pytest.mark.parametrize(
    ("kind", "given", "kept"),
    [
        ("Q4_1", {}, "int8"),
        ("Q8_0", {}, "int8"),
        ("F16", {}, "none"),
        ("Q4_1", {"dtype": "float32"}, "none"),
        ("Q4_1", {"quantization": "none"}, "none"),
        ("F16", {"quantization": "int8"}, "int8"),
    ],
)
def test_weights_that_have_few_bits_are_kept_in_8(tmp_path: Path, kind: str, given: dict[str, Any], kept: str) -> None:
    config = EngineConfig(model=str(write_gguf(tmp_path / "model.gguf", kind=kind)), **given)
    assert decided(config).quantization == kept


def test_a_gpu_and_a_folder_keep_what_they_have(tmp_path: Path) -> None:
    path = write_gguf(tmp_path / "model.gguf", kind="Q4_1")
    assert with_quantization(EngineConfig(model=str(path)), on_gpu=True).quantization == "none"
    assert decided(EngineConfig(model=str(SHIPPED / "slipstream-chat"))).quantization == "none"


def test_an_engine_serves_the_file_under_its_name(tmp_path: Path) -> None:
    path = write_gguf(tmp_path / "some-model.gguf", kind="Q8_0")
    config = EngineConfig(model=str(path), kernels="torch", kv=KVConfig(budget_bytes=1 << 20), threads=1)
    service = Service(config)
    assert (service.name, service.context_tokens, service.config.quantization) == ("some-model", 512, "int8")
    engine = build_engine(service.config, 512, Tokenizer.load(path))
    engine.submit(request("r", [5, 6, 7], max_tokens=8))
    assert text(drain(engine)["r", 0])
