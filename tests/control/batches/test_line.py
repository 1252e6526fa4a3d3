"""A batch's input is checked as OpenAI does it: each mistake with its line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from control.batches import line as lines
from control.batches.line import Input, checked, line_of, numbered

GOOD: dict[str, Any] = {
    "custom_id": "a",
    "method": "POST",
    "url": "/v1/completions",
    "body": {"model": "code", "prompt": "x"},
}


def read(path: Path, *written: bytes) -> Input:
    path.write_bytes(b"\n".join(written))
    return checked(path, "/v1/completions", lambda name: None if name in ("code", "other") else f"no {name}")


def but(**changes: Any) -> bytes:
    return json.dumps({name: value for name, value in {**GOOD, **changes}.items() if value is not None}).encode()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "in.jsonl"


def test_lines_keep_their_bodies_and_their_numbers(path: Path) -> None:
    found = read(path, but(), b"", b"  ", but(custom_id="b", body={"model": "other", "n": 1.50}))
    assert (found.total, found.model, found.errors) == (2, None, [])
    assert [(number, bytes(line_of(raw).body)) for number, raw in numbered(path)] == [
        (1, b'{"model": "code", "prompt": "x"}'),
        (4, b'{"model": "other", "n": 1.5}'),
    ]
    assert read(path, but()).model == "code"


@pytest.mark.parametrize(
    ("written", "code", "param"),
    [
        (b"{", "invalid_json_line", None),
        (b'{"custom_id": "\xff"}', "invalid_json_line", None),
        (b'{"custom_id": "a", "x": ' + b"[" * 300 + b"]" * 300 + b"}", "invalid_json_line", None),
        (b"[]", "invalid_value", None),
        (but(custom_id=None), "missing_required_parameter", "custom_id"),
        (but(body=None), "missing_required_parameter", "body"),
        (but(body={}), "missing_required_parameter", "body.model"),
        (but(body={"model": 7}), "invalid_value", "body.model"),
        (but(body=[]), "invalid_value", "body"),
        (but(custom_id=7), "invalid_value", "custom_id"),
        (but(custom_id=""), "invalid_custom_id", "custom_id"),
        (but(custom_id="x" * 513), "invalid_custom_id", "custom_id"),
        (but(method="GET"), "invalid_method", "method"),
        (but(url="/v1/chat/completions"), "invalid_url", "url"),
        (but(body={"model": "code", "stream": True}), "invalid_value", "body.stream"),
        (but(body={"model": "lost"}), "model_not_found", "body.model"),
    ],
)
def test_a_mistake_is_reported_with_its_line(path: Path, written: bytes, code: str, param: str | None) -> None:
    [error] = read(path, but(custom_id="first"), written).errors
    assert (error.line, error.code, error.param) == (2, code, param)
    assert len(error.message) < 1_000


def test_a_stream_that_is_null_is_no_stream(path: Path) -> None:
    assert not read(path, but(body={"model": "code", "stream": None}).replace(b"}}", b', "stream": null}}')).errors


def test_empty_lines_are_bounded(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """200 MB of newlines held the worker's loop for longer than its leases last, and so all tenants' batches."""
    monkeypatch.setattr(lines, "MAX_NUMBERED", 3)
    assert read(path, but(), b"", b"").errors == []
    for first in (but(), b""):
        [error] = read(path, first, *[b""] * 5).errors
        assert (error.line, error.code) == (4, "too_many_lines")


def test_an_empty_file_too_many_lines_and_a_line_too_long(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert [each.code for each in read(path, b"", b" ").errors] == ["empty_file"]
    monkeypatch.setattr(lines, "MAX_LINES", 2)
    [error] = read(path, *(but(custom_id=str(number)) for number in range(4))).errors
    assert (error.line, error.code) == (3, "too_many_requests")
    monkeypatch.setattr(lines, "LINE_BYTES", 300)
    [error] = read(path, but(custom_id="x" * 200, body={"model": "code", "prompt": "y" * 5_000})).errors
    assert (error.line, error.code) == (1, "line_too_long")
    monkeypatch.setattr(lines, "MAX_ERRORS", 3)
    monkeypatch.setattr(lines, "MAX_LINES", 100)
    assert len(read(path, *[b"{"] * 10).errors) == 3
