"""What `slipstream tools engines render` prints for vLLM: its own parser takes all of it."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import msgspec
import pytest

from contracts.desired_state import Replica
from tests.deployment import ROOT
from tests.tools.launch.launched import HEAD, launch_of, pool_of, rendered
from tools.launch.config import LaunchSpeculation

pytestmark = [pytest.mark.vllm, pytest.mark.timeout(600)]


def asked_of_its_python(script: Path, given: str = "") -> str:
    """What a script prints that vLLM's Python runs."""
    venv = os.environ.get("SLIPSTREAM_TEST_VLLM_VENV")
    if not venv:
        pytest.skip("SLIPSTREAM_TEST_VLLM_VENV is not set")
    words = [f"{venv}/bin/python", "-W", "ignore", str(script)]
    done = subprocess.run(words, input=given, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def test_its_own_parser_takes_every_command() -> None:
    events, replay = "tcp://10.0.0.5:5557", "tcp://10.0.0.5:5558"
    replica = Replica(id="gpu-0", url="http://10.0.0.5:30000", kv_events=events, kv_events_replay=replay)
    ngram = LaunchSpeculation(algorithm="ngram", adaptive=False)
    specs = [
        rendered(pool_of("vllm", abort_by_id=True, replicas=(replica,)), launch_of(speculation=HEAD), speculation=True),
        rendered(pool_of("vllm", max_adapters=16), launch_of(speculation=HEAD)),
        rendered(pool_of("vllm"), launch_of(speculation=ngram, priorities=False), speculation=True),
        *(rendered(pool_of("vllm"), launch_of(gpu=gpu)) for gpu in ("a100", "h200", "b200")),
    ]
    commands = msgspec.json.encode([spec.command[2:] for spec in specs]).decode()
    understood = asked_of_its_python(Path(__file__).parent / "parse_commands.py", commands).splitlines()
    assert len(understood) == len(specs)
    for spec, line in zip(specs, understood, strict=True):
        told = msgspec.json.decode(line)
        assert told["api_key"] is None
        assert told["max_num_seqs"] == 32
        assert (told["drafts"] is not None) is spec.speculation


def test_the_options_in_the_repository_are_those_of_its_parser() -> None:
    folder = ROOT / "tools/launch/options"
    assert asked_of_its_python(folder / "read_vllm.py") == (folder / "vllm.json").read_text()
