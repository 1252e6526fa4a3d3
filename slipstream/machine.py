"""What this machine has for engines: cores, memory, a GPU's memory."""

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
    """gpu_memory_bytes: of the first CUDA device, 0: there is none. native_bfloat16: the CPU computes in it."""

    cores: int
    memory_bytes: int
    gpu_memory_bytes: int
    native_bfloat16: bool


def this_machine(*, with_gpu: bool) -> Machine:
    """As this process may use it. with_gpu: look for a GPU too, which takes seconds."""
    return Machine(
        cores=len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1,
        memory_bytes=memory_bytes(),
        gpu_memory_bytes=_gpu_memory_bytes() if with_gpu else 0,
        native_bfloat16=_native_bfloat16(),
    )


def _gpu_memory_bytes() -> int:
    """As torch finds it, in a process of its own: it would keep some of that memory for as long as it lives."""
    asked = subprocess.run([sys.executable, "-c", GPU_PROGRAM], capture_output=True, text=True, check=False)
    return int(asked.stdout) if asked.returncode == 0 else 0


def _native_bfloat16() -> bool:
    try:
        return "avx512_bf16" in CPU_INFO.read_text()
    except OSError:
        return False
