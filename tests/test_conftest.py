"""Tests of one group run in one of xdist's processes, for which module and session fixtures start once; and a random
order keeps the tests of a file together."""

from __future__ import annotations

import copy
import itertools
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from xdist.scheduler import LoadGroupScheduling  # type: ignore[import-untyped]

from tests import random_order

pytestmark = pytest.mark.xdist_group("tests of groups")
CONFIG: Any = SimpleNamespace(
    option=SimpleNamespace(loadgroup=True), pluginmanager=SimpleNamespace(has_plugin=lambda _: False)
)


@pytest.mark.parametrize("parameter", ["plain", "with @ in it"])
def test_xdists_scheduler_finds_the_group_in_the_name(request: pytest.FixtureRequest, parameter: str) -> None:
    item = copy.copy(request.node)
    conftest(request).pytest_collection_modifyitems(CONFIG, [item])
    scheduler = LoadGroupScheduling.__new__(LoadGroupScheduling)
    assert scheduler._split_scope(item.nodeid) == "tests of groups"


@pytest.mark.parametrize("shuffled", [False, True])
def test_a_random_order_is_not_put_in_the_usual_order(request: pytest.FixtureRequest, shuffled: bool) -> None:
    items = [item("shared", "b@shared"), item("a.py", "a.py::test@a.py")]
    options = SimpleNamespace(loadgroup=True)
    plugins = SimpleNamespace(has_plugin=lambda name: shuffled and name == random_order.__name__)
    ordered = items[::-1]
    conftest(request).pytest_collection_modifyitems(SimpleNamespace(option=options, pluginmanager=plugins), ordered)
    assert ordered == (items[::-1] if shuffled else items)


def test_a_random_order_shuffles_files_and_their_tests_by_its_seed(monkeypatch: pytest.MonkeyPatch) -> None:
    tests = [SimpleNamespace(nodeid=f"{file}.py::test_{number}") for file in "abcdef" for number in range(6)]

    def order(seed: str) -> list[str]:
        monkeypatch.setenv(random_order.SEED, seed)
        random_order.pytest_configure()  # keeps a seed that is given
        items: list[Any] = list(tests)
        random_order.pytest_collection_modifyitems(items)
        return [each.nodeid for each in items]

    first = order("1")
    assert first == order("1") != order("2")
    assert sorted(first) == [each.nodeid for each in tests]
    files = [file for file, _ in itertools.groupby(first, lambda name: name.partition("::")[0])]
    assert len(files) == 6, "the tests of a file stay together"
    assert files != sorted(files)
    assert [name for name in first if name.startswith("a.py")] != [f"a.py::test_{number}" for number in range(6)]


def conftest(request: pytest.FixtureRequest) -> Any:
    return request.config.pluginmanager.get_plugin(str(Path(__file__).with_name("conftest.py")))


def item(group: str, nodeid: str) -> Any:
    return SimpleNamespace(nodeid=nodeid, get_closest_marker=lambda _: pytest.mark.xdist_group(group).mark)
