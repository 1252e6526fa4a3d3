"""The page on the spread of changes agrees with the code and names existing tests."""

from __future__ import annotations

import importlib
import re
from datetime import timedelta
from typing import Any, NamedTuple

import pytest

from control.slo.objectives import SloConfig
from slipstream.gateway_settings import GatewaySettings
from slipstream.worker_config import WorkerConfig
from tests.deployment import ROOT

PAGE = ROOT / "docs" / "concepts" / "spread.md"
SETTINGS = {"gateway": GatewaySettings, "worker": WorkerConfig, "slo": SloConfig}
AT_ONCE = "at once"
TIMES = {"": 1, "twice": 2}


class Row(NamedTuple):
    state: str
    how: str
    bound: str
    set_by: str
    test: str


def rows() -> list[Row]:
    lines = [line for line in PAGE.read_text().splitlines() if line.startswith("| ")]
    return [Row(*(cell.strip() for cell in line.strip("|").split("|"))) for line in lines[1:]]


def value_of(name: str) -> float:
    """Seconds that a setting has by default, or a module's constant."""
    first, *rest = name.split(".")
    try:
        found: Any = SETTINGS[first]()
        for part in rest:
            found = getattr(found, part)
    except (AttributeError, KeyError):
        module, _, constant = name.rpartition(".")
        found = getattr(importlib.import_module(module), constant)
    return found.total_seconds() if isinstance(found, timedelta) else float(found)


@pytest.mark.parametrize("row", rows(), ids=lambda row: row.state)
def test_a_bound_is_the_codes_and_its_test_is_there(row: Row) -> None:
    if row.bound == AT_ONCE:
        assert row.set_by == ""
    else:
        *times, name = row.set_by.replace("`", "").split()
        assert row.bound == f"{value_of(name) * TIMES[''.join(times)]:g} s"
    path, _, name = row.test.strip("`").partition("::")
    assert re.search(rf"^(?:(?:async )?def {name}\(|{name} = )", (ROOT / path).read_text(), re.MULTILINE)


def test_what_is_announced_is_on_the_page() -> None:
    channels = (ROOT / "storage/channels.py").read_text()
    announced = set(re.findall(r"^(\w+)_CHANNEL = ", channels, re.MULTILINE))
    assert announced == {"KEYS", "PRICES", "DESIRED"}
    assert {"keys", "prices", "fleet"} <= {row.state.partition(":")[0] for row in rows()}
