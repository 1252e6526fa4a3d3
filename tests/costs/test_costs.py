"""The costs of hot paths do not creep: calls, bytes and I/O are counted and compared with the recorded numbers."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from engines.http.event_splitter import EventSplitter
from tests.costs import kept
from tests.costs.__main__ import ENVIRONMENT
from tests.costs.kept import VERSION, Cost, differences, read
from tests.costs.meter import Meter
from tests.costs.page import FILE, OPERATIONS, page

ROOT = Path(__file__).parents[2]
KEPT = {"token": Cost({"a.py:feed": 50, "a.py:take": 49, "b.py:Relay.send": 1}, 10_000, 90)}


def now(functions: dict[str, float], size: float = 10_000, torch: float = 90) -> list[str]:
    """The differences of these counts from `KEPT`. functions: those with other numbers."""
    return differences(KEPT, {"token": Cost({**KEPT["token"].functions, **functions}, size, torch)})


def test_every_operation_costs_what_is_recorded() -> None:
    recorded = read()
    if not recorded:
        pytest.skip(f"no costs are recorded for Python {VERSION}; record them: python -m tests.costs --write")
    environment = {name: os.environ[name] for name in ("PATH", "HOME", "TMPDIR") if name in os.environ} | ENVIRONMENT
    ran = subprocess.run([sys.executable, "-m", "tests.costs"], cwd=ROOT, env=environment, capture_output=True)
    assert ran.returncode == 0, ran.stderr.decode()
    counted = msgspec.json.decode(ran.stdout, type=dict[str, Cost])
    assert counted.keys() == OPERATIONS.keys()
    if different := differences(recorded, counted):
        pytest.fail("\n\n".join(different), pytrace=False)


def test_functions_that_are_called_more_often_are_named_most_first() -> None:
    (text,) = now({"b.py:Relay.send": 3, "a.py:feed": 51})
    assert "103 calls of Python functions, recorded 100 (+3.0 %)" in text
    assert text.splitlines()[1:] == ["  2 more calls of b.py:Relay.send", "  1 more call of a.py:feed"]


def test_up_to_two_percent_more_or_less_are_tolerated() -> None:
    assert now({"b.py:Relay.send": 3}) == []
    assert now({"a.py:feed": 48}, 9_801, 91) == []


def test_a_lower_number_must_be_recorded() -> None:
    (text,) = now({"a.py:take": 20})
    assert "only 71 calls of Python functions, recorded 100 (-29.0 %)" in text
    assert "python -m tests.costs --write" in text


def test_more_bytes_and_more_operations_are_reported_without_more_calls() -> None:
    size, torch = now({}, 10_201, 92)
    assert "10,201 bytes allocated, recorded 10,000 (+2.0 %)" in size
    assert "No function is called more often" in size
    assert "92 operations of PyTorch, recorded 90 (+2.2 %)" in torch


def test_one_more_write_is_reported_and_recorded_only_on_request(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = {"token": msgspec.structs.replace(KEPT["token"], io={"writes to the client": 1})}
    after = {"token": msgspec.structs.replace(KEPT["token"], io={"writes to the client": 2})}
    (text,) = differences(before, after)
    assert "2 writes to the client, recorded 1 (+100.0 %)" in text
    assert "allocate" not in text
    monkeypatch.setattr(kept, "FILE", tmp_path / "counts.json")
    kept.write(before)
    assert kept.write(after) == ["token"]
    assert read() == before


def test_small_rises_add_up_because_only_a_lower_number_is_recorded_unasked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kept, "FILE", tmp_path / "counts.json")
    assert kept.write(KEPT) == []
    risen = Cost({**KEPT["token"].functions, "a.py:feed": 51}, 10_000, 90)
    assert kept.write({"token": risen}) == ["token"]
    assert read() == KEPT
    fallen = Cost({**KEPT["token"].functions, "a.py:feed": 49}, 10_000, 90)
    assert kept.write({"token": fallen}) == []
    assert read() == {"token": fallen}
    assert kept.write({"token": risen}, raised=["token"]) == []
    assert read() == {"token": risen}


def test_a_new_and_a_missing_operation_are_reported() -> None:
    texts = differences(KEPT, {"lease": KEPT["token"]})
    assert [text.partition(";")[0] for text in texts] == [
        "lease: no cost is recorded",
        "token: a cost is recorded, and nothing counts it",
    ]


def test_calls_are_counted_by_file_and_name_except_in_a_pause() -> None:
    meter, splitter = Meter(), EventSplitter()
    meter.start()
    list(splitter.feed(b"data: 1\n\n"))
    meter.pause()
    list(splitter.feed(b"data: 2\n\n"))
    meter.resume()
    list(splitter.feed(b"data: 3\n\n"))
    count = meter.stop()
    list(splitter.feed(b"data: 4\n\n"))
    twice = count.functions["engines/http/event_splitter.py:EventSplitter.feed"]
    meter.start()
    list(splitter.feed(b"data: 5\n\n"))
    once = meter.stop().functions["engines/http/event_splitter.py:EventSplitter.feed"]
    assert (twice, once) == (4, 2), "a generator is entered again for its end"


@pytest.mark.parametrize("size", [10, 300, 70_000])
def test_every_requested_byte_is_counted(size: int) -> None:
    meter = Meter()

    def counted(pieces: int) -> int:
        places: list[bytes | None] = [None] * pieces
        meter.start()
        for at in range(pieces):
            places[at] = bytes(size)
        return meter.stop().bytes

    with meter.for_bytes():
        counted(20)
        assert counted(20) - counted(10) == 10 * sys.getsizeof(bytes(size))


def test_the_page_shows_the_recorded_numbers() -> None:
    assert FILE.read_text() == page(), "write it again: python -m tests.costs --page"
