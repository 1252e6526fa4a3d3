"""A pytest plugin that shuffles files and the tests in each: `make test ARGS="-p tests.random_order"`.

The run prints its ORDER_SEED first; set that variable to repeat the order.
"""

from __future__ import annotations

import os
import random

import pytest

SEED = "ORDER_SEED"


def pytest_configure() -> None:
    """Draw a seed before xdist starts its workers: they inherit it, and all must have the same order."""
    os.environ.setdefault(SEED, str(random.SystemRandom().randrange(2**32)))


def pytest_report_header() -> str:
    """The line that shows how to repeat the order."""
    return f"random order: {SEED}={os.environ[SEED]}"


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Shuffle."""
    order = random.Random(os.environ[SEED])
    by_file: dict[str, list[pytest.Item]] = {}
    for item in items:
        by_file.setdefault(item.nodeid.partition("::")[0], []).append(item)
    files = list(by_file.values())
    order.shuffle(files)
    for tests in files:
        order.shuffle(tests)
    items[:] = [item for tests in files for item in tests]
