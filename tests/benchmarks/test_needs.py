"""A benchmark names the missing program in one line before it starts."""

from __future__ import annotations

import runpy
import shutil
import sys

import pytest
import torch

LACKING = {
    ("diagnosis",): "missing: nginx (apt-get install nginx)",
    ("usage_freshness",): "missing: chromium (apt-get install chromium)",
    ("alert_freshness",): "missing: chromium (apt-get install chromium)",
    ("engine_transport",): "missing: SLIPSTREAM_TEST_SGLANG_VENV and SLIPSTREAM_TEST_SGLANG_SERVE are not set",
    ("placement_sglang",): "missing: SLIPSTREAM_TEST_SGLANG_VENV and SLIPSTREAM_TEST_SGLANG_SERVE are not set",
    ("engine_gpu",): "missing: a GPU and PyTorch for it; --device cpu --shape small runs on a processor",
    ("gateway_in_turn", "/none"): "missing: /none/.venv/bin/python (make check, in that working tree, makes it)",
    ("fill_layouts", "--corpus", "/none"): "missing: the corpus /none (python -m tools.training corpus makes it)",
}


@pytest.mark.parametrize("command", LACKING, ids=lambda command: command[0])
def test_a_benchmark_names_the_missing_program(
    command: tuple[str, ...], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    module, *arguments = command
    monkeypatch.setattr(shutil, "which", lambda *_, **__: None)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    for name in ("VENV", "SERVE"):
        monkeypatch.delenv(f"SLIPSTREAM_TEST_SGLANG_{name}", raising=False)
    monkeypatch.setattr(sys, "argv", [module, *arguments])
    monkeypatch.delitem(sys.modules, f"benchmarks.{module}", raising=False)
    with pytest.raises(SystemExit) as ended:
        runpy.run_module(f"benchmarks.{module}", run_name="__main__")
    assert ended.value.code == 2
    assert capsys.readouterr().err.splitlines() == [LACKING[command]]
