"""`transformers`, in a process of its own that runs `generate` over whole batches, without HTTP.

That is its oldest and most used interface. Version 5 also has `generate_batch` and a server with continuous batching
(`transformers serve --continuous-batching`); neither is measured here.
"""

from __future__ import annotations

import asyncio
import itertools
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from benchmarks.engine_cpu_rivals.build import versions
from benchmarks.engine_cpu_rivals.process import ProcessTree
from benchmarks.engine_cpu_rivals.rival import Missing, Sample, Setup

WORKER = Path(__file__).parent / "workers" / "generate_loop.py"


class HuggingFace:
    """Runs one batch after another, each of as many prompts as the concurrency asked for."""

    def __init__(self, setup: Setup, venv: str | None) -> None:
        """venv: an environment with torch and transformers; None for the environment of this process."""
        python = str(Path(venv, "bin", "python").absolute()) if venv else sys.executable
        try:
            missing = subprocess.run([python, "-c", "import torch, transformers"], capture_output=True).returncode
        except OSError:
            missing = 1
        if missing:
            raise Missing("give SLIPSTREAM_HF_VENV or --hf-venv, an environment with torch and transformers")
        self.build = f"{versions(python, 'transformers', 'torch')}; generate over static batches, no HTTP"
        environment = {"OMP_NUM_THREADS": str(setup.threads), "HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}
        command = [python, str(WORKER), str(setup.model), str(setup.threads)]
        self._tree = ProcessTree("transformers", command, environment, setup.scratch, piped=True)

    async def ready(self) -> None:
        await self._generate([[1, 2, 3]], 2)

    async def burst(self, prompts: Iterator[list[int]], concurrent: int, tokens: int, seconds: float) -> Sample:
        sample = Sample()
        cpu_s, started_s = self._tree.cpu_s(), time.perf_counter()
        while time.perf_counter() < started_s + seconds:
            answer = await self._generate([next(prompts) for _ in range(concurrent)], tokens)
            arrived_s = answer["arrived_s"]
            sample.tokens += concurrent * tokens
            sample.first_s += [arrived_s[0]] * concurrent
            gaps_s = [later - earlier for earlier, later in itertools.pairwise(arrived_s)]
            sample.gaps_s += gaps_s * concurrent
        sample.elapsed_s = time.perf_counter() - started_s
        sample.cpu_s = self._tree.cpu_s() - cpu_s
        return sample

    async def text(self, prompt: list[int], tokens: int) -> str:
        text: str = (await self._generate([prompt], tokens))["text"]
        return text

    def pause(self) -> None:
        self._tree.pause()

    def resume(self) -> None:
        self._tree.resume()

    def stop(self) -> None:
        self._tree.stop()

    async def _generate(self, prompts: list[list[int]], tokens: int) -> Any:
        stdin, stdout = self._tree.process.stdin, self._tree.process.stdout
        assert stdin is not None
        assert stdout is not None
        stdin.write(msgspec.json.encode({"prompts": prompts, "tokens": tokens}) + b"\n")
        stdin.flush()
        line = await asyncio.to_thread(stdout.readline)
        if not line:
            await asyncio.to_thread(self._tree.process.wait)
            self._tree.require_running()
        return msgspec.json.decode(line)
