"""`slipstream up` starts the real SGLang next to an embedded engine, and stops it."""

from __future__ import annotations

import json
import urllib.request
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.deployment import key_in
from tests.processes import executes
from tests.sglang.server import UNSET, settings
from tests.slipstream.deployment import RestartableDeployment
from tests.waiting import eventually_blocking

GUARD_S = 600.0
POOLS = """
models = [
  {{ name = "tiny", tier = "chat", pool = "chat", context_tokens = 1024 }},
  {{ name = "own", tier = "chat", pool = "own", context_tokens = 512 }},
]

[[pools]]
name = "chat"
driver = "sglang"

[pools.launch]
model = "slipstream-chat"
program = "{python}"
memory_fraction = 0.2
environment = {{ PYTHONPATH = "{shim}", SGLANG_USE_CPU_ENGINE = "1", OMP_NUM_THREADS = "1", HF_HUB_OFFLINE = "1" }}
extra_arguments = ["--device", "cpu", "--attention-backend", "torch_native", "--max-total-tokens", "20000"]

[[pools]]
name = "own"
driver = "embedded"
engine = {{ model = "slipstream-chat" }}
"""


@pytest.mark.nightly
@pytest.mark.timeout(900)
def test_sglang_serves_under_the_roof_and_leaves_no_process(data_folder: Path) -> None:
    found = settings()
    if found is None:
        pytest.skip(UNSET)
    venv, serve = found
    pools = POOLS.format(python=venv / "bin" / "python3", shim=serve.parent / "shim")
    deployment = RestartableDeployment(data_folder, engines=True, settings=pools)
    try:
        key = key_in("\n".join(deployment.up()))
        answered = _chat(deployment.port, key, "own")  # while SGLang loads
        assert answered["usage"]["completion_tokens"]
        eventually_blocking(lambda: "engine-chat-1  chat  healthy" in deployment.run("status").stdout, GUARD_S)
        first, second = _chat(deployment.port, key, "tiny"), _chat(deployment.port, key, "tiny")
        assert first["choices"][0]["message"] == second["choices"][0]["message"]
        assert second["usage"]["prompt_tokens_details"]["cached_tokens"]
        process = psutil.Process(deployment.processes()["engine-chat-1"].pid)
        pids = [process.pid, *(child.pid for child in process.children(recursive=True))]
        assert len(pids) >= 3  # HTTP, scheduler, detokenizer
        assert deployment.run("down").stdout == "stopped\n"
        eventually_blocking(lambda: not any(executes(pid) for pid in pids))
    finally:
        deployment.close()


def _chat(port: int, key: str, model: str) -> dict[str, Any]:
    body = {"model": model, "messages": [{"role": "user", "content": "What is the capital of France?"}]}
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}/v1/chat/completions",
        data=json.dumps({**body, "temperature": 0, "max_tokens": 12}).encode(),
        headers={"authorization": f"Bearer {key}", "content-type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=60) as answer:
        told: dict[str, Any] = json.load(answer)
    return told
