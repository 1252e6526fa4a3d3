"""Replaces the clocks of `time` with clocks that advance by a millisecond at each read.

Import it before everything else: what is measured of a request then has the same digits each time. They are C, for a
function in Python would be counted.
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
