"""Sets the examples that property tests draw: few and the same ones in the gate, many new ones at night."""

from __future__ import annotations

import os
from typing import Any

import hypothesis

GATE, NIGHTLY = "gate", "nightly"
GATE_EXAMPLES = 25


def register_profiles() -> None:
    """`gate` always draws the same examples, so that a red test is a regression. `make nightly` chooses `nightly`."""
    untimed = hypothesis.settings(deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow])
    hypothesis.settings.register_profile(GATE, untimed, max_examples=GATE_EXAMPLES, derandomize=True)
    hypothesis.settings.register_profile(NIGHTLY, untimed, max_examples=400, print_blob=True)
    hypothesis.settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", GATE))


def examples(nightly: int, gate: int = GATE_EXAMPLES, **more: Any) -> hypothesis.settings:
    """Settings for a property test that wants another number of examples than its profile; more: as hypothesis'."""
    night = hypothesis.settings.get_current_profile_name() == NIGHTLY
    return hypothesis.settings(max_examples=nightly if night else gate, **more)
