"""Logs as JSON: every record is one line that any reader of JSON takes, and a process writes nothing else."""

from __future__ import annotations

import json
import logging
import os
import signal
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infra.local.log_file import last_line
from telemetry.current_request import CurrentRequest, current_request
from telemetry.json_lines import JsonLines, json_line
from telemetry.log import TextLines
from tests.deployment import free_port
from tests.waiting import GUARD_S


def record(message: object, *arguments: object, **more: object) -> logging.LogRecord:
    made = logging.LogRecord("gateway.serving", logging.WARNING, "file.py", 1, message, arguments, None)
    made.__dict__.update(more)
    return made


@given(message=st.text(), argument=st.text())
def test_any_record_is_one_line_of_json(message: str, argument: str) -> None:
    line = JsonLines().format(record("%s: %s", message, argument))
    assert len(line.splitlines()) == 1
    assert line.isascii()
    told = json.loads(line)
    assert told["message"] == f"{message}: {argument}"
    assert (told["level"], told["logger"]) == ("WARNING", "gateway.serving")


@given(message=st.text(), argument=st.text())
def test_any_record_is_one_line_of_text_without_commands_to_a_terminal(message: str, argument: str) -> None:
    assert TextLines().format(record("%s: %s", message, argument)).isprintable()


def test_time_is_in_rfc_3339() -> None:
    told = json.loads(JsonLines().format(record("x", created=1_700_000_000.25)))
    assert told["time"] == "2023-11-14T22:13:20.250Z"
    assert datetime.fromisoformat(told["time"]) == datetime.fromtimestamp(1_700_000_000.25, UTC)


def test_a_record_whose_arguments_do_not_fit_is_written_all_the_same() -> None:
    assert json.loads(JsonLines().format(record("%d requests", "many")))["message"] == "%d requests ('many',)"


def test_an_exception_is_a_field() -> None:
    try:
        raise ValueError("two\nlines")  # noqa: TRY301
    except ValueError:
        line = JsonLines().format(record("it failed", exc_info=sys.exc_info()))
    assert len(line.splitlines()) == 1
    told = json.loads(line)
    assert told["message"] == "it failed"
    assert told["exception"].startswith("Traceback")
    assert told["exception"].endswith("two\nlines")


def test_the_request_is_named_as_far_as_it_is_known() -> None:
    names = CurrentRequest("req_1")
    token = current_request.set(names)
    try:
        assert json.loads(JsonLines().format(record("x"))).keys() == {
            "time",
            "level",
            "logger",
            "message",
            "request_id",
        }
        names.organization_id, names.trace_id = "org", "0af7651916cd43dd8448eb211c80319c"
        told = json.loads(JsonLines().format(record("x")))
    finally:
        current_request.reset(token)
    assert (told["request_id"], told["organization_id"], told["trace_id"]) == ("req_1", "org", names.trace_id)


def started(tmp_path: Path, **settings: str) -> subprocess.Popen[str]:
    """A router with its log as JSON."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("SLIPSTREAM_")}
    given = {
        "LOGGING__FORMAT": "json",
        "ROUTER__PORT": str(free_port()),
        "ROUTER__CONTROL_PORT": str(free_port()),
        **settings,
    }
    return subprocess.Popen(
        [sys.executable, "-m", "slipstream", "router", "--data", str(tmp_path / "data")],
        env={**environment, **{f"SLIPSTREAM_{name}": value for name, value in given.items()}},
        cwd=tmp_path,
        stderr=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def test_a_process_writes_nothing_but_json(tmp_path: Path) -> None:
    (tmp_path / "slipstream.toml").write_text("[router]\nmetrics_port = 0\n")  # renamed: warned of while it is read
    router = started(tmp_path)
    assert router.stderr is not None
    lines = [router.stderr.readline(), router.stderr.readline()]
    router.send_signal(signal.SIGTERM)
    output, rest = router.communicate(timeout=GUARD_S)
    told = [json.loads(line) for line in [*lines, *rest.splitlines()]]
    assert router.returncode == 0
    assert output == ""
    assert "has been renamed" in told[0]["message"]
    assert "router listening on" in told[1]["message"]


def test_so_does_one_that_cannot_start(tmp_path: Path) -> None:
    router = started(tmp_path, ROUTER__SOCKET=str(tmp_path / "absent" / "router.sock"))
    _, errors = router.communicate(timeout=GUARD_S)
    assert router.returncode == 2
    told = [json.loads(line) for line in errors.splitlines()]
    assert told[-1]["level"] == "ERROR"
    assert told[-1]["message"].startswith("router.socket: cannot listen on")
    log = tmp_path / "router.log"
    log.write_text(errors + json_line(0.0, "WARNING", "supervisor", "router pid 1 ended with exit code 2") + "\n")
    assert last_line(log) == told[-1]["message"]


def test_an_unknown_format_stops_the_start(tmp_path: Path) -> None:
    router = started(tmp_path, LOGGING__FORMAT="xml")
    _, errors = router.communicate(timeout=GUARD_S)
    assert router.returncode == 2
    assert errors.startswith("slipstream: logging.format: 'xml' is not one of: ")


@pytest.mark.parametrize("line", ["{not json", '{"time": 1}', "plain"])
def test_a_log_that_is_not_json_is_read_as_it_is(line: str, tmp_path: Path) -> None:
    log = tmp_path / "one.log"
    log.write_text(line + "\n")
    assert last_line(log) == line
