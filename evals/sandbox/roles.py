"""What the two confined processes do: one holds the program, one the tests; they speak over pipes, a line a message.

The tests' process never holds the program: what it gets are values, so nothing the program does can make a verdict.
"""

from __future__ import annotations

import builtins
import io
import json
from typing import Any

from evals.sandbox.plain import decode, encode

MOST_LINE_BYTES = 8 << 20


def _send(file: io.BufferedWriter, message: Any) -> None:
    file.write(json.dumps(message).encode() + b"\n")
    file.flush()


def _receive(file: io.BufferedReader) -> Any:
    line = file.readline(MOST_LINE_BYTES)
    if not line.endswith(b"\n"):
        raise EOFError
    return json.loads(line)


def answer_calls(requests: io.BufferedReader, replies: io.BufferedWriter) -> None:
    """The candidate: defines what the model wrote, then answers calls until nobody asks."""
    task = _receive(requests)
    scope: dict[str, Any] = {"__name__": "answer"}
    try:
        for part in task["code"]:
            exec(compile(part, "answer", "exec"), scope)
        function = scope[task["entry_point"]]
        _send(replies, {"ready": True})
    except BaseException as error:  # sys.exit too is an answer that does not work
        _send(replies, {"error": type(error).__name__, "said": _said(error)})
        return
    while True:
        arguments, named = decode(_receive(requests))
        try:
            reply = {"value": encode(function(*arguments, **named))}
        except BaseException as error:
            reply = {"error": type(error).__name__, "said": _said(error)}
        _send(replies, reply)


def _said(error: BaseException) -> str:
    try:
        return str(error)[:300]
    except BaseException:  # its __str__ is foreign code
        return ""


def _require_ready(begun: Any) -> None:
    if "ready" not in begun:
        raise RuntimeError(f"{begun['error']}: {begun['said']}")


def run_tests(
    task_file: io.BufferedReader, verdicts: io.BufferedWriter, requests: io.BufferedWriter, replies: io.BufferedReader
) -> None:
    """The tests: they never meet the candidate, only values it returned."""
    task = _receive(task_file)
    lost: list[str] = []

    def candidate(*arguments: Any, **named: Any) -> Any:
        if lost:
            raise RuntimeError(lost[0])
        try:
            _send(requests, encode(([*arguments], {**named})))
            reply = _receive(replies)
            if "value" in reply:
                return decode(reply["value"])
            error, said = str(reply["error"]), str(reply["said"])
        except Exception as broken:
            # Noted, so that tests that expect exceptions do not take a dead candidate for one.
            lost.append("it ended, ran out of time or memory, or returned no plain data")
            raise RuntimeError(lost[0]) from broken
        known = getattr(builtins, error, None)
        # what ends an iteration quietly would end a loop of the tests that calls the candidate, and so pass them
        silent = (StopIteration, StopAsyncIteration)
        if isinstance(known, type) and issubclass(known, Exception) and not issubclass(known, silent):
            raise known(said)
        raise RuntimeError(f"{error}: {said}")

    why = ""
    try:
        _send(requests, {"code": task["code"], "entry_point": task["entry_point"]})
        _require_ready(_receive(replies))
        scope: dict[str, Any] = {"__name__": "tests"}
        exec(compile(task["setup"], "setup", "exec"), scope)
        scope[task["entry_point"]] = scope["candidate"] = candidate
        exec(compile(task["test"], "tests", "exec"), scope)
        if "check" in scope:
            scope["check"](candidate)
        passed = not lost
        why = lost[0] if lost else ""
    except EOFError:
        passed, why = False, "it did not start: it ended, or ran out of time or memory"
    except BaseException as error:
        passed, why = False, f"{type(error).__name__}: {_said(error)}"
    _send(verdicts, {"nonce": task["nonce"], "passed": passed, "why": why[:300]})
