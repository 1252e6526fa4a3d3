"""A series of gate runs alternates its kinds, burns cores on request, and stops at the first failure."""

from __future__ import annotations

import json
from pathlib import Path

import psutil
import pytest

from benchmarks import gate_series

MAKEFILE = """
test:
\t@echo "$(WORKERS) $(ARGS)" >> calls
\t@echo "=== 3 passed in 0.01s ==="
\t@test "$$(wc -l < calls)" -lt 5
"""


def test_kinds_take_turns_until_one_run_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "Makefile").write_text(MAKEFILE)
    monkeypatch.setattr(gate_series, "ROOT", tmp_path)
    for name, value in {"MAKEFLAGS": " -- ARGS=-x", "ARGS": "-v", "WORKERS": "9"}.items():
        monkeypatch.setenv(name, value)
    [missed] = gate_series.main({"plain": 2, "workers": 1, "random": 1, "burnt": 2}, tmp_path)
    assert missed.startswith("run 5 failed")
    *lines, last = capsys.readouterr().out.splitlines()
    assert [line.split()[1] for line in lines] == ["plain", "workers", "random", "burnt", "plain"]
    assert lines[0].endswith("3 passed in 0.01s")
    assert json.loads(last).items() >= {"runs": 6, "passed": 4}.items()
    calls = (tmp_path / "calls").read_text().splitlines()
    assert [call.strip() for call in calls] == ["", "4", "-p tests.random_order", "", ""]


def test_cores_are_burnt_for_the_run_and_no_longer() -> None:
    def burners() -> int:
        return sum("while True: pass" in child.cmdline() for child in psutil.Process().children())

    with gate_series.burning(gate_series.BURNERS):
        assert burners() == gate_series.BURNERS
    assert burners() == 0
