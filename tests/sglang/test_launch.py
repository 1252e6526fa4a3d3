"""What `slipstream tools engines render` prints for SGLang: its own parser takes it, and one of the commands runs."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from contracts.desired_state import Pool, Replica
from contracts.errors import SlipstreamError
from engines.drivers import registry as drivers
from engines.drivers.base import EngineRequest
from engines.http.engine_connections import EngineConnections
from engines.http.keys import OneKey
from tests.deployment import ROOT
from tests.real_engine import READY_S
from tests.sglang.server import MODELS, free_port, settings
from tests.tools.launch.launched import launch_of, pool_of, rendered
from tools.launch.config import LaunchConfig, LaunchSpeculation
from tools.launch.spec import LaunchSpec

pytestmark = [pytest.mark.sglang, pytest.mark.timeout(900)]
OURS = MODELS / "slipstream-code"
HEAD = LaunchSpeculation(draft_model=str(OURS / "draft"))
KEY = 'it\'s-the-"engine"-key'


def asked_of_its_python(venv: Path, script: Path, given: str = "") -> str:
    """What a script prints that SGLang's Python runs with its stand-ins for CUDA, by the way `serve` starts it."""
    shim = Path(os.environ["SLIPSTREAM_TEST_SGLANG_SERVE"]).parent / "shim"
    environment = {**os.environ, "PYTHONPATH": str(shim), "SGLANG_USE_CPU_ENGINE": "1"}
    done = subprocess.run(
        [venv / "bin" / "python", "-W", "ignore", script],
        input=given,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


@pytest.fixture
def venv() -> Path:
    """SGLang's virtual environment."""
    found = settings()
    if found is None:
        pytest.skip("SLIPSTREAM_TEST_SGLANG_VENV and SLIPSTREAM_TEST_SGLANG_SERVE are not set")
    return found[0]


def put(spec: LaunchSpec) -> None:
    """What the command needs on the engine's machine: its files, and its key."""
    for file in spec.files:
        Path(file.path).parent.mkdir(exist_ok=True)
        Path(file.path).write_text(file.content)
    for line in spec.before:
        subprocess.run(["sh", "-ec", line], check=True)


def variants(folder: Path) -> list[tuple[Pool, LaunchConfig, bool]]:
    """Everything that writes an option of its own."""
    (folder / "key").write_text(KEY)
    (folder / "engines").mkdir()
    events, replay = "tcp://10.0.0.5:5557", "tcp://10.0.0.5:5558"
    replicas = (
        Replica(
            id="gpu-0", url="http://10.0.0.5:30000", kv_events=events, kv_events_replay=replay, bootstrap_port=8_998
        ),
    )
    pool = pool_of("sglang", api_key_file=str(folder / "key"), replicas=replicas)
    keyless = pool_of("sglang", api_key_file="", api_key_required=False)
    tree = LaunchSpeculation(draft_model="/models/head", topk=4, draft_tokens=8, adaptive=False)
    ngram = LaunchSpeculation(algorithm="ngram", adaptive=False)
    launch = launch_of(folder=str(folder / "engines"), speculation=HEAD)
    made = [
        (msgspec.structs.replace(pool, role=role), launch, on)
        for role in ("unified", "prefill", "decode")
        for on in (True, False)
    ]
    for gpu in ("a100", "h100", "h200", "b200"):
        made.append((keyless, msgspec.structs.replace(launch, gpu=gpu), True))
    for attention in ("flashinfer", "triton"):
        made.append((keyless, msgspec.structs.replace(launch, attention=attention), True))
    made.append((keyless, msgspec.structs.replace(launch, speculation=tree, priorities=False), True))
    made.append((keyless, msgspec.structs.replace(launch, speculation=ngram, kv_dtype="bf16"), True))
    fixed = msgspec.structs.replace(launch, speculation=msgspec.structs.replace(HEAD, adaptive=False))
    made.append((msgspec.structs.replace(keyless, max_adapters=16), fixed, True))
    made.append((keyless, launch_of(model=str(OURS), shape="", weights="fp8"), False))
    return made


def test_its_own_parser_takes_every_command(venv: Path, tmp_path: Path) -> None:
    specs = [rendered(*each) for each in variants(tmp_path)]
    for spec in specs:
        put(spec)
    commands = msgspec.json.encode([spec.command[len(spec.program) :] for spec in specs]).decode()
    understood = asked_of_its_python(venv, Path(__file__).parent / "parse_commands.py", commands).splitlines()
    assert len(understood) == len(specs) == 16
    for spec, line in zip(specs, understood, strict=True):
        told: dict[str, Any] = msgspec.json.decode(line)
        assert told["api_key"] == (KEY if spec.before else None)
        assert told["max_running_requests"] == 32
        assert told["enable_metrics"] is True
        assert (told["speculative_algorithm"] is not None) is spec.speculation
        if told["speculative_adaptive"]:
            assert told["speculative_num_steps"] in told["candidate_steps"]
        if told["disaggregation_mode"] == "null" and spec.before:
            assert msgspec.json.decode(told["kv_events_config"])["endpoint"] == "tcp://*:5557"


def test_the_options_in_the_repository_are_those_of_its_parser(venv: Path) -> None:
    folder = ROOT / "tools/launch/options"
    assert asked_of_its_python(venv, folder / "read_sglang.py") == (folder / "sglang.json").read_text()


ON_A_CPU = (
    "--device", "cpu", "--attention-backend", "intel_amx", "--mem-fraction-static", "0.2",
    "--max-total-tokens", "20000", "--disable-cuda-graph", "--sleep-on-idle",
)  # fmt: skip
"""What this machine cannot do as rendered: the last word of an option wins."""


@pytest.mark.nightly
async def test_a_rendered_command_starts_and_serves_with_its_key(
    venv: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPEC", "1")  # the script's: attention that can check drafts
    (tmp_path / "key").write_text(KEY)
    (tmp_path / "engines").mkdir()
    port = free_port()
    replicas = (Replica(id="gpu-0", url=f"http://127.0.0.1:{port}", kv_events=f"tcp://127.0.0.1:{free_port()}"),)
    pool = pool_of("sglang", api_key_file=str(tmp_path / "key"), replicas=replicas)
    launch = launch_of(model=str(OURS), shape="", folder=str(tmp_path / "engines"), speculation=HEAD)
    spec = rendered(pool, launch, speculation=True, context_tokens=4_096)
    put(spec)
    connections, strangers = EngineConnections(OneKey(KEY)), EngineConnections(OneKey("another"))
    try:
        async with started(venv, spec, port, tmp_path / "log") as url:
            body = msgspec.json.encode(
                {"model": "coder", "prompt": "def add(a, b):", "max_tokens": 16, "temperature": 0}
            )
            ask = EngineRequest("POST", "/v1/completions", body)
            status, answer = await connections.fetch(url, ask, 300)
            assert status == 200, answer
            assert msgspec.json.decode(answer)["usage"]["completion_tokens"] == 16
            assert (await strangers.fetch(url, ask, 30))[0] == 401
            status, answer = await connections.fetch(url, EngineRequest("GET", "/server_info"), 30)
            told = msgspec.json.decode(answer)
            assert told["max_running_requests"] == 32
            assert told["speculative_adaptive"] is True
    finally:
        await connections.close()
        await strangers.close()


@contextlib.asynccontextmanager
async def started(venv: Path, spec: LaunchSpec, port: int, log: Path) -> AsyncIterator[str]:
    """The engine as its command starts it, on a machine without a GPU."""
    found = settings()
    assert found is not None
    with log.open("w") as output:
        process = await asyncio.create_subprocess_exec(
            "bash", str(found[1]), str(venv), str(OURS), str(port), *spec.command[len(spec.program) :], *ON_A_CPU,
            stdout=output, stderr=output, start_new_session=True,
        )  # fmt: skip
    url, connections = f"http://127.0.0.1:{port}", EngineConnections(OneKey(KEY))
    try:
        async with asyncio.timeout(READY_S):
            while process.returncode is None:
                with contextlib.suppress(SlipstreamError):
                    if (await connections.fetch(url, drivers.get("sglang").health(), 5))[0] == 200:
                        break
                await asyncio.sleep(0.5)
        assert process.returncode is None, (await asyncio.to_thread(log.read_text))[-3000:]
        yield url
    finally:
        await connections.close()
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        await process.wait()
