"""The sandbox that models' programs run in."""

from __future__ import annotations

import pytest

from evals.sandbox.sandbox import IsolationUnavailable, Sandbox


@pytest.fixture(scope="session")
def usual_sandbox() -> Sandbox:
    """With the usual limits; skips where this machine has no namespaces."""
    found = Sandbox()
    try:
        found.require()
    except IsolationUnavailable as error:
        pytest.skip(str(error))
    return found
