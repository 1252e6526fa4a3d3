"""Engines of other projects that `up` starts: by the rendered command, watched like any process, and no reason for the
rest to wait or to stop."""

from __future__ import annotations

import os
import signal
import sys
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import msgspec
import pytest

from contracts.errors import ConfigError
from infra.local.child import Child, State
from infra.local.ports import Ports
from infra.local.supervisor import Supervisor
from slipstream import engine_log, launch_plan, start_check
from slipstream.launch_plan import LocalLaunch
from slipstream.launch_runner import LaunchedEngines
from slipstream.model_folder import SHIPPED
from slipstream.processes import Processes
from slipstream.progress import Progress
from slipstream.settings import Settings
from tests.deployment import ROOT
from tests.other_account import listening_as_another_account
from tests.processes import executes
from tests.waiting import eventually
from tools.launch.text import script_of

FAKE = ROOT / "tests" / "fakes" / "llama_server.py"
QUICK = {"restart_first_s": 0.01, "restart_max_s": 0.05}


def _settings(data: Path, *pools: dict[str, Any], **local: Any) -> Settings:
    models = [
        {"name": f"m-{each['name']}", "tier": "chat", "pool": each["name"], "context_tokens": 512} for each in pools
    ]
    told = {"models": models, "pools": pools, "local": {"data": str(data), **QUICK, **local}}
    return msgspec.convert(told, Settings)


def _pool(name: str, driver: str, model: object, **given: Any) -> dict[str, Any]:
    launch = {"model": str(model), **given.pop("launch", {})}
    return {"name": name, "driver": driver, "launch": launch, **given}


def _planned(settings: Settings) -> tuple[Settings, tuple[LocalLaunch, ...]]:
    local = launch_plan.local_pools(settings)
    settings = launch_plan.with_replicas(settings, Ports(settings.data.ports_file).pick)
    return settings, launch_plan.plan_launches(settings, local)


def _fake(folder: Path) -> Path:
    """As found by its name on a PATH of this folder."""
    folder.mkdir(exist_ok=True)
    program = folder / "llama-server"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -S {FAKE} "$@"\n')
    program.chmod(0o755)
    return program


def _status(url: str, key: str = "") -> int:
    request = urllib.request.Request(url, headers={"authorization": f"Bearer {key}"})
    try:
        with urllib.request.urlopen(request, timeout=10) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code


async def test_an_engine_is_started_kept_up_and_ended_and_two_that_cannot_start_stop_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = _fake(tmp_path / "bin")
    model, cut = tmp_path / "model.gguf", tmp_path / "cut.gguf"
    model.write_bytes(b"GGUF")
    cut.touch()
    settings, engines = _planned(
        _settings(
            tmp_path / "data",
            _pool("good", "llama_cpp", model, launch={"program": str(program)}),
            _pool("cut", "llama_cpp", cut, launch={"program": str(program)}),
            _pool("absent", "vllm", SHIPPED / "slipstream-chat", launch={"program": "/nowhere/vllm"}),
        )
    )
    settings.data.prepare()
    for engine in engines:
        settings.data.engine_script(engine.name).write_text(script_of(engine.spec))
    said: list[str] = []
    loading = model.with_suffix(".loading")
    loading.touch()

    def say(_: Progress, text: str) -> None:
        said.append(text)
        if text.startswith("engine-good-1 ") and "loading model" in text:  # the cut model's error has the words too
            loading.unlink(missing_ok=True)

    monkeypatch.setattr(Progress, "say", say)
    supervisor = Supervisor(settings.data, settings.local, said.append)
    launched = LaunchedEngines(
        engines, supervisor, Processes(settings, []), Progress(quiet=False), progress_interval_s=0.05
    )
    try:
        await launched.start()
        states = {status.name: status.state for status in supervisor.status()}
        assert states == {
            "engine-good-1": State.READY, "engine-cut-1": State.FAILED, "engine-absent-1": State.FAILED,
        }  # fmt: skip
        log = settings.data.log("engine-cut-1")
        assert (
            "warning: engine-cut-1 did not start: llama_model_load: error loading model: invalid magic characters "
            f"(log: {log}); the rest serves without it"
        ) in said
        assert sum("engine-cut-1 pid" in line and line.endswith("ended with exit code 1") for line in said) == 3
        assert any(line.startswith("engine-good-1           starting") and "loading model" in line for line in said)
        (good, *_) = engines
        # the deployment's token is its key, which no command line shows
        assert _status(f"{good.replica.url}/v1/models", settings.token) == 200
        assert _status(f"{good.replica.url}/v1/models") == 401
        assert settings.token not in " ".join(good.spec.command)

        pids = model.with_suffix(".pids")
        first = [int(pid) for pid in pids.read_text().split()]
        os.kill(first[0], signal.SIGKILL)
        await eventually(lambda: not any(executes(pid) for pid in first))
        await eventually(lambda: supervisor.status()[0].state is State.READY and supervisor.status()[0].restarts == 1)
        assert f"engine-good-1 pid {first[0]} ended with signal SIGKILL" in said
        second = [int(pid) for pid in pids.read_text().split()]
        assert first != second
    finally:
        await supervisor.stop((("engine",),))
    await eventually(lambda: not any(executes(pid) for pid in second))


async def test_an_engine_whose_port_another_account_takes_is_given_up(tmp_path: Path) -> None:
    model = tmp_path / "model.gguf"
    model.write_bytes(b"GGUF")
    pool = _pool("chat", "llama_cpp", model, launch={"program": str(_fake(tmp_path / "bin"))})
    settings, (engine,) = _planned(_settings(tmp_path / "data", pool))
    settings.data.prepare()
    assert settings.own_engines == (engine.replica.url,)
    settings.data.engine_script(engine.name).write_text("exec sleep 600")  # it loads, and listens later
    spec = Processes(settings, []).launched(engine)
    child = Child(spec, tmp_path / "log", settings.local)
    child.start()
    await eventually(lambda: child.pid is not None)
    with listening_as_another_account(int(engine.replica.url.rpartition(":")[2])):
        with pytest.raises(ConfigError, match="engine-chat-1 did not start: a program of the account nobody listens"):
            await child.ready()
        assert (child.state, child.pid) == (State.FAILED, None)
        with pytest.raises(ConfigError, match="restart `slipstream up`"):  # a restart is refused too
            await spec.before_start()
    await child.stop()


def test_every_engine_is_a_replica_with_a_port_a_tokenizer_and_the_command_that_is_printed(tmp_path: Path) -> None:
    program = _fake(tmp_path / "bin")
    model = tmp_path / "m.gguf"
    model.write_bytes(b"GGUF")
    given = _settings(
        tmp_path / "data",
        _pool("a", "sglang", "slipstream-chat", local_replicas=2, tensor_parallel=2),
        _pool("b", "vllm", "slipstream-chat", tensor_parallel=1, launch={"environment": {"X": "a b"}}),
        _pool("c", "llama_cpp", model, launch={"program": str(program)}),
    )
    settings, engines = _planned(given)
    assert [engine.name for engine in engines] == ["engine-a-1", "engine-a-2", "engine-b-1", "engine-c-1"]
    assert len({engine.replica.url for engine in engines}) == 4
    assert [model.tokenizer for model in settings.models] == [str(SHIPPED / "slipstream-chat")] * 2 + [None]
    assert [pool.max_concurrency for pool in settings.pools] == [0, 0, 4]
    words = [engine.spec.command for engine in engines]
    folder = str(SHIPPED / "slipstream-chat")
    assert words[0][:5] == ("python3", "-m", "sglang.launch_server", "--model-path", folder)
    assert {"--enable-metrics", "--enable-cache-report", "--tp-size"} <= set(words[0])
    assert not {"--kv-cache-dtype", "--attention-backend", "--max-running-requests"} & set(words[0])
    assert words[2][:3] == ("vllm", "serve", folder)
    assert words[3][0] == str(program)
    assert words[3][-5:] == ("--parallel", "4", "--ctx-size", "2048", "--metrics")
    own = [{each.name: each.value for each in engine.spec.environment} for engine in engines]
    assert [each.get("CUDA_VISIBLE_DEVICES") for each in own] == ["0,1", "2,3", "4", None]
    assert own[2]["X"] == "a b"
    assert [engine.unavailable_reason.partition(":")[0] for engine in engines] == [
        "SGLang is not installed", "SGLang is not installed", "vLLM is not installed", "",
    ]  # fmt: skip
    assert "set pools.b.launch.program" in engines[2].unavailable_reason
    # a start is warned of them and not refused
    start_check.check(given)
    assert sum(" is not installed: no `" in warning for warning in start_check.warnings(given)) == 2


def test_sglang_is_run_by_the_python_next_to_its_script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("sglang", "python3"):
        (tmp_path / name).write_text("#!/bin/sh\n")
        (tmp_path / name).chmod(0o755)
    linked = tmp_path / "linked"
    linked.mkdir()
    (linked / "sglang").symlink_to(tmp_path / "sglang")
    monkeypatch.setenv("PATH", str(linked))
    _, [engine] = _planned(_settings(tmp_path / "data", _pool("a", "sglang", "slipstream-chat")))
    assert (engine.spec.program[0], engine.unavailable_reason) == (str(tmp_path / "python3"), "")


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "a driver without a program": ({"driver": "embedded"}, "`up` cannot start engines of the driver 'embedded'"),
    "half of a pair": ({"role": "decode"}, "starts no prefill/decode pairs"),
    "two engines at one port": ({"local_replicas": 2, "port": 9}, "port 9 cannot serve 2 engines"),
    "a folder that is not here": ({"model": "/nowhere/m"}, "/nowhere/m is not on this machine; give the folder"),
    "a folder for a file": ({"driver": "llama_cpp"}, "slipstream-chat is not a GGUF file"),
    "a setting of a GPU": ({"kv_dtype": "fp8"}, "launch.kv_dtype: it is computed for a GPU"),
    "an engine of GPUs": ({"driver": "tensorrt_llm", "api_key_required": False}, "launch.gpu: empty"),
    "two that share GPUs": ({"local_replicas": 2, "gpu": "h100"}, "tensor_parallel: 0, but 2 engines share"),
    "a GPU for llama.cpp": ({"driver": "llama_cpp", "gpu": "h100", "model": "ggml-org/m-GGUF"}, "launch.gpu: h100"),
}


@pytest.mark.parametrize("fault", REFUSED)
def test_what_cannot_be_started_is_refused_with_the_next_step(fault: str, tmp_path: Path) -> None:
    given, sentence = REFUSED[fault]
    of_pool = {name: given[name] for name in given.keys() & {"driver", "role", "local_replicas", "api_key_required"}}
    launch = {"model": "slipstream-chat", **{name: given[name] for name in given.keys() - of_pool.keys()}}
    settings = _settings(tmp_path, {"name": "p", "driver": "sglang", "launch": launch, **of_pool})
    with pytest.raises(ConfigError, match=r"^pools\.p\.") as refused:
        _planned(settings)
    assert sentence in refused.value.message


LOGS = {
    "SGLang": (
        "[2026-11-28 18:00:00] Scheduler hit an exception: Traceback (most recent call last):\n"
        '  File "scheduler.py", line 1, in run\n'
        "RuntimeError: Not enough memory. Please try to increase --mem-fraction-static.\n"
        "[2026-11-28 18:00:01] Received sigquit from a child process. It usually means the child failed.\n",
        "RuntimeError: Not enough memory. Please try to increase --mem-fraction-static.",
    ),
    "vLLM": (
        "(EngineCore pid=7) ERROR 11-28 18:00:00 [core.py:8] ValueError: No available memory for the cache blocks.\n"
        "(APIServer pid=3) RuntimeError: Engine core initialization failed. See root cause above.\n",
        "ValueError: No available memory for the cache blocks.",
    ),
    "an option": (
        "usage: vllm serve\nvllm: error: unrecognized arguments: --x\n",
        "vllm: error: unrecognized arguments: --x",
    ),
    "nothing known": ("one\n2026-11-28T18:00:00Z supervisor: e pid 1 ended with exit code 1\n", "one"),
}


@pytest.mark.parametrize("engine", LOGS)
def test_the_cause_of_an_end_is_found_before_the_lines_that_report_it(engine: str, tmp_path: Path) -> None:
    text, line = LOGS[engine]
    log = tmp_path / "log"
    log.write_text(text)
    assert engine_log.failure_line(log) == line
