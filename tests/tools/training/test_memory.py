"""What a training process frees stays with it."""

from __future__ import annotations

import subprocess
import sys

import pytest

FAULTS = """
import resource
from tools.training.memory import keep_freed_memory

def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    bytearray(2**26)[::4096]
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

before = min(faults() for _ in range(3))
known = keep_freed_memory()
after = min(faults() for _ in range(3))
print(int(known), before, after)
"""


def test_memory_taken_again_costs_no_page_faults() -> None:
    """In a process of its own: the setting lasts."""
    done = subprocess.run([sys.executable, "-c", FAULTS], capture_output=True, text=True, check=True)
    known, before, after = map(int, done.stdout.split())
    if not known:
        pytest.skip("not glibc: nothing changes")
    assert before > 2**26 // 4096 // 2
    assert after < before // 10
