"""No xdist worker ends long after the others, because slow tests begin first."""

from __future__ import annotations

from tests.group_order import scheduling_order


def test_shared_groups_come_first_and_then_the_smallest_files() -> None:
    tests = ["many.py", "few.py", "one gateway", "many.py", "other.py", "two", "one gateway", "few.py", "many.py"]
    order = scheduling_order(tests)
    assert [tests[at] for at in order] == [
        "one gateway", "one gateway", "two", "other.py", "few.py", "few.py", "many.py", "many.py", "many.py",
    ]  # fmt: skip
    assert order == [2, 6, 5, 4, 1, 7, 0, 3, 8], "the tests of a group keep their order"
