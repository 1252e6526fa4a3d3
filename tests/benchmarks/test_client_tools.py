"""The benchmark of load tools reads each tool's result, and detects a missing request or token."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from msgspec.structs import replace

from benchmarks import client_tools
from benchmarks.client_tool_runs import environment
from benchmarks.client_tool_runs.tool import Endpoint, Figures, Target
from benchmarks.client_tool_runs.tools import TOOLS
from benchmarks.client_tools import VENV, Counted, Run, differences, report
from tests.deployment import ROOT

RECORDED = Path(__file__).parent / "client_tools"
"""Results of the tools from real runs on the shipped models, without the lists of single requests."""
FILES = {
    "guidellm": ("guidellm.json", "result.json"),
    "sglang": ("sglang.jsonl", "result.jsonl"),
    "vllm": ("vllm.json", "result.json"),
    "aiperf": ("aiperf.json", "profile_export_aiperf.json"),
}
FIGURES = Figures(24, 0, 1536, 384, 10.0, 2.0, 100.0)


def read(tool: str, folder: Path) -> Figures:
    recorded, name = FILES[tool]
    shutil.copy(RECORDED / recorded, folder / name)
    figures = TOOLS[tool].read(folder)
    return replace(
        figures,
        ttft_p50_ms=round(figures.ttft_p50_ms, 1),
        itl_p50_ms=round(figures.itl_p50_ms, 1),
        output_tokens_per_s=round(figures.output_tokens_per_s, 1),
    )


@pytest.mark.parametrize(
    ("tool", "figures"),
    [
        ("guidellm", Figures(24, 0, 1536, 384, 103.7, 14.3, 174.4)),
        ("sglang", Figures(24, 0, 710, 249, 102.7, 18.7, 138.6)),
        ("vllm", Figures(24, 0, 1538, 384, 70.1, 10.3, 253.1)),
        ("aiperf", Figures(24, 0, 1608, 384, 106.9, 16.3, 68.3)),
    ],
)
def test_the_result_of_each_tool_is_read(tool: str, figures: Figures, tmp_path: Path) -> None:
    assert read(tool, tmp_path) == figures


@pytest.mark.parametrize("endpoint", Endpoint)
@pytest.mark.parametrize("tool", TOOLS)
def test_a_tool_asks_the_endpoint_of_the_model(tool: str, endpoint: Endpoint) -> None:
    target = Target("http://127.0.0.1:1", "sk-1", endpoint, "m", Path("/tokenizer"))
    command = TOOLS[tool].arguments(target)
    assert "http://127.0.0.1:1" in " ".join(command)
    assert "chat" in " ".join(command) if endpoint is Endpoint.CHAT else "chat" not in " ".join(command)
    # a key in an environment is not seen by every account of the machine; two tools take it as an option alone
    assert ("sk-1" in " ".join(command)) == (tool in ("guidellm", "aiperf"))


def test_one_token_is_a_difference() -> None:
    sglang, guidellm = TOOLS["sglang"], TOOLS["guidellm"]
    assert not differences(guidellm, FIGURES, Counted(24, 1536, 384))
    assert differences(guidellm, FIGURES, Counted(24, 1536, 383)) == "output: 384 here, 383 in the ledger"
    assert differences(guidellm, FIGURES, Counted(25, 1536, 384)) == "requests: 24 here, 25 in the ledger"
    assert differences(guidellm, FIGURES, Counted(24, 1537, 384)) == "prompt: 1536 here, 1537 in the ledger"
    assert not differences(sglang, FIGURES, Counted(24, 1900, 384))  # with the chat template


def test_a_failed_request_is_reported(capsys: pytest.CaptureFixture[str]) -> None:
    tool, counted = TOOLS["vllm"], Counted(24, 1536, 384)
    assert report([Run(tool, Endpoint.CHAT, FIGURES, counted)])
    assert not report([Run(tool, Endpoint.CHAT, replace(FIGURES, completed=23, failed=1), counted)])
    assert not report([Run(tool, Endpoint.CHAT, None, None)])
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines() if line.startswith("{")]
    assert [line["wrong"] for line in lines] == [
        {},
        {"vllm chat": "1 requests failed, 23 did not"},
        {"vllm chat": "no figures"},
    ]


def test_a_package_that_cannot_be_installed_is_named_in_a_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    said = "WARNING: no\nERROR: No matching distribution found for torch==2.13.0\n"
    ended = subprocess.CompletedProcess((), 1, "", said)
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: ended)
    monkeypatch.setattr(sys, "argv", ["client_tools", "--venv", str(tmp_path / "venv")])
    with pytest.raises(SystemExit) as exited:
        client_tools.main()
    assert exited.value.code == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("missing: the tools' environment; making ")
    assert line.endswith("ERROR: No matching distribution found for torch==2.13.0")


@pytest.mark.system
@pytest.mark.nightly
@pytest.mark.timeout(1800)
@pytest.mark.skipif(not environment.is_ready(VENV), reason="NOT TESTED: python -m benchmarks.client_tools was not run")
def test_the_tools_print_figures_through_the_gateway() -> None:
    ended = subprocess.run(
        (sys.executable, "-m", "benchmarks.client_tools"), cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert json.loads(ended.stdout.splitlines()[-1])["right"] == 2 * len(TOOLS)
