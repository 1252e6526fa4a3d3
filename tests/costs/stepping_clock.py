"""Replaces the clocks of `time` with clocks that advance by about a millisecond at each read.

Call `install` before other imports; a request's times then have the same digits in every run. The clocks are C, because
a Python function would be counted.
"""

from __future__ import annotations

import itertools
import time

STEP_S = 2.0**-10
"""A power of two, so that differences are exact."""


def install() -> None:
    """Replace the clocks for the rest of this process."""
    for name, start_s in (("time", 1_800_000_000.0), ("monotonic", 1_000.0), ("perf_counter", 1_000.0)):
        setattr(time, name, itertools.count(start_s, STEP_S).__next__)
