"""A real SGLang, started by a script that runs it on this machine."""

from __future__ import annotations

from pathlib import Path

from benchmarks.engine_cpu_rivals.build import versions
from benchmarks.engine_cpu_rivals.http_rival import NAME, HttpRival
from benchmarks.engine_cpu_rivals.process import ProcessTree
from benchmarks.engine_cpu_rivals.rival import Missing, Setup
from tests.deployment import free_port


class SGLang(HttpRival):
    """`SERVE VENV MODEL_FOLDER PORT [sglang flags]` runs the server in the foreground."""

    def __init__(self, setup: Setup, venv: str | None, serve: str | None) -> None:
        if not venv or not serve or not Path(venv, "bin", "python").exists() or not Path(serve).exists():
            raise Missing(
                "give SLIPSTREAM_SGLANG_VENV and SLIPSTREAM_SGLANG_SERVE, or --sglang-venv and --sglang-serve"
            )
        port = free_port()
        context = setup.most_concurrent * setup.context_tokens
        command = ["bash", serve, venv, str(setup.model), str(port), "--served-model-name", NAME]
        environment = {"OMP_NUM_THREADS": str(setup.threads), "MAX_TOTAL_TOKENS": str(max(context, 20_000))}
        build = f"{versions(str(Path(venv, 'bin', 'python')), 'sglang', 'torch')}; started by {Path(serve).name}"
        super().__init__(ProcessTree("sglang", command, environment, setup.scratch), port, build)
