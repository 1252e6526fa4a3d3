"""The resources of this machine for engines: cores, memory and a GPU's memory."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import msgspec

from engines.embedded.cores import memory_bytes

GPU_PROGRAM = (
    "import torch; print(torch.cuda.get_device_properties(0).total_memory if torch.cuda.is_available() else 0)"
)
CPU_INFO = Path("/proc/cpuinfo")


class Machine(msgspec.Struct, frozen=True):
    """gpu_memory_bytes: memory of the first CUDA device, 0 without one. native_bfloat16: the CPU computes in it."""

    cores: int
    memory_bytes: int
    gpu_memory_bytes: int
    native_bfloat16: bool


def this_machine(*, with_gpu: bool) -> Machine:
    """The resources that this process may use. with_gpu: also look for a GPU, which takes seconds."""
    return Machine(
        cores=len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1,
        memory_bytes=memory_bytes(),
        gpu_memory_bytes=_gpu_memory_bytes() if with_gpu else 0,
        native_bfloat16=_native_bfloat16(),
    )


def _gpu_memory_bytes() -> int:
    """The GPU's memory by torch, in a separate process: torch would keep some of that memory until its process ends."""
    result = subprocess.run([sys.executable, "-c", GPU_PROGRAM], capture_output=True, text=True, check=False)
    return int(result.stdout) if result.returncode == 0 else 0


def _native_bfloat16() -> bool:
    try:
        return "avx512_bf16" in CPU_INFO.read_text()
    except OSError:
        return False
