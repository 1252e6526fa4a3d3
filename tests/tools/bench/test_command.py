"""`slipstream tools bench` on a server whose figures are known."""

from __future__ import annotations

import contextlib
import http.server
import os
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import msgspec
import pytest
from click.testing import CliRunner, Result

from slipstream.commands.bench import bench
from tools.bench.client import MAX_LINE_BYTES

TEMPLATE_TOKENS, WORD_TOKENS, EVENT_TOKENS = 11, 2, 3
"""A prompt's tokens around its words, a word's, and an event's: counting words or events gives other figures."""
Refusal = tuple[int, str] | None
SHORT = ("--warm-up-s", "0", "--prompt-tokens", "111", "--output-tokens", "9")


@contextlib.contextmanager
def server(
    refusal: Callable[[int], Refusal] = lambda _: None, cut: int | None = None, long: int | None = None
) -> Iterator[tuple[str, list[Any]]]:
    """An engine that writes EVENT_TOKENS tokens an event. Yields its URL and the requests after the two samples.

    refusal: by number of the request; cut: the number of one whose stream ends early; long: of one with a line that no
    engine writes."""
    bodies: list[Any] = []
    lock = threading.Lock()

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._answer(200, {"data": [{"id": "m"}]})

        def do_POST(self) -> None:
            body = msgspec.json.decode(self.rfile.read(int(self.headers["content-length"])))
            if body.get("ignore_eos"):
                self._answer(400, {"error": {"message": "ignore_eos: not known here", "code": "unknown_field"}})
                return
            with lock:
                number = len(bodies) - 2
                bodies.append(body)
            if number >= 0 and (refused := refusal(number)):
                self._answer(refused[0], {"error": {"message": "no", "code": refused[1]}})
                return
            self._answer(200, None)
            events = -(-body["max_tokens"] // EVENT_TOKENS)
            if number == long:
                self._event({"choices": [], "padding": "x" * 4 * MAX_LINE_BYTES})
            for _ in range(events if number != cut else 1):
                self._event({"choices": [{"delta": {"content": "t"}}]})
            if number != cut:
                words = len(body["messages"][0]["content"].split())
                usage = {
                    "prompt_tokens": words * WORD_TOKENS + TEMPLATE_TOKENS, "completion_tokens": body["max_tokens"],
                    "prompt_tokens_details": {"cached_tokens": 1},
                }  # fmt: skip
                self._event({"choices": [], "usage": usage})
                self.wfile.write(b"data: [DONE]\n\n")

        def _answer(self, status: int, body: Any) -> None:
            self.send_response(status)
            self.end_headers()
            if body is not None:
                self.wfile.write(msgspec.json.encode(body))

        def _event(self, event: Any) -> None:
            self.wfile.write(b"data: " + msgspec.json.encode(event) + b"\n\n")

        def log_message(self, *_: Any) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as running:
        thread = threading.Thread(target=running.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield f"http://127.0.0.1:{running.server_address[1]}", bodies
        finally:
            running.shutdown()
            thread.join()


def run(url: str, *arguments: str) -> Result:
    return CliRunner().invoke(bench, ["--url", url, *SHORT, *arguments])


def trace_of(folder: Path, *requests: tuple[int, int, int, list[int]]) -> str:
    names = ("timestamp", "input_length", "output_length", "hash_ids")
    path = folder / "trace.jsonl"
    path.write_bytes(b"\n".join(msgspec.json.encode(dict(zip(names, each, strict=True))) for each in requests))
    return str(path)


def test_a_run_counts_tokens_by_usage_and_errors_by_code(tmp_path: Path) -> None:
    refusals = {1: (429, "rate_limit_exceeded"), 2: (429, "rate_limit_exceeded"), 4: (503, "overloaded")}
    trace, plot = trace_of(tmp_path, *[(at, 111, 9, [0]) for at in range(8)]), tmp_path / "run.svg"
    with server(refusals.get, cut=5) as (url, bodies):
        result = run(f"{url}/v1", "--trace", trace, "--json", "--plot", str(plot), "--objective", ":60000:0")
    assert result.exit_code == 0, result.output
    said = msgspec.json.decode(result.stdout)
    assert said["errors"] == {"429 rate_limit_exceeded": 2, "503 overloaded": 1, "cut off": 1}
    assert [said[name]["avg"] for name in ("request_count", "error_request_count", "good_request_count")] == [4, 4, 4]
    assert (said["total_output_tokens"]["avg"], said["total_isl"]["avg"]) == (36, 444)
    assert said["total_cached_tokens"]["avg"] == 4
    duration = said["benchmark_duration"]["avg"]
    assert said["output_token_throughput"] == {"unit": "tokens/sec", "avg": pytest.approx(36 / duration)}
    assert said["time_to_first_token"].keys() == {"unit", "avg", "min", "p50", "p90", "p99", "max"}
    assert len({body["messages"][0]["content"] for body in bodies}) == 10, "no cache helps"
    drawn = ElementTree.fromstring(plot.read_text())
    assert "template" not in result.stderr
    assert len(drawn.findall(".//{*}polyline")) == 3
    assert len(drawn.findall(".//{*}circle")) == 4


def test_prompts_of_a_trace_share_what_its_blocks_share(tmp_path: Path) -> None:
    trace = trace_of(tmp_path, (0, 1_100, 1, [1, 2, 3]), (1, 1_200, 1, [1, 9, 4]), (2, 12, 1, [7]))
    with server() as (url, bodies):
        result = run(url, "--trace", trace)
    assert result.exit_code == 0
    # milliseconds apart, so they may arrive in any order
    short, one, other = sorted((body["messages"][0]["content"].split() for body in bodies[2:]), key=len)
    assert len(short) * WORD_TOKENS + TEMPLATE_TOKENS == 13, "the shortest that there is"
    assert "1 of 3 prompts were sent with about 13 tokens, the smallest possible length" in result.stderr
    assert one[:256] == other[:256]
    assert one[256:512] != other[256:512]
    assert [len(words) * WORD_TOKENS + TEMPLATE_TOKENS for words in (one, other)] == [1_099, 1_199]


def test_objectives_that_are_missed_leave_no_goodput_and_a_failed_run_is_exit_code_1() -> None:
    with server() as (url, _):
        result = run(url, "--seconds", "0.1", "--streams", "2", "--objective", ":0.000001:0")
    assert (result.exit_code, "0 of " in result.stdout) == (0, True), result.output
    with server(lambda _: (503, "overloaded")) as (url, _):
        result = run(url, "--seconds", "0.05")
    assert result.exit_code == 1
    assert "× 503 overloaded" in result.stdout


def test_every_refused_stream_pauses() -> None:
    """Fault: a stream looked at the answer of the stream that had sent last, and sent thousands of requests."""
    with server(lambda _: (429, "rate_limit_exceeded")) as (url, bodies):
        run(url, "--seconds", "0.35", "--streams", "8")
    assert len(bodies) - 2 <= 8 * 4, "each stream at 0, 0.1, 0.2 and 0.3 s"


def test_ctrl_c_gives_the_report_so_far() -> None:
    def interrupt(number: int) -> Refusal:
        if number == 20:
            os.kill(os.getpid(), signal.SIGINT)
        return None

    with server(interrupt) as (url, _):
        result = run(url, "--seconds", "600", "--streams", "2")
    assert result.exit_code == 0, result.output
    assert "stopping; the report covers the requests so far" in result.stderr
    assert "met their objectives" in result.stdout


def test_a_hostile_servers_responses_are_faults_and_reach_no_terminal(tmp_path: Path) -> None:
    trace = trace_of(tmp_path, *[(at, 111, 9, [0]) for at in range(3)])
    with server(lambda number: (429, "\x1b[31mred") if number == 1 else None, long=2) as (url, _):
        result = run(url, "--trace", trace)
    assert r"429 \x1b[31mred" in result.stdout
    assert "\x1b" not in result.output
    assert "unreadable event" in result.stdout


def test_a_server_that_refuses_or_is_not_there_is_named() -> None:
    with server(lambda _: None) as (url, _):
        result = run(url, "--prompt-tokens", "9-3")
    assert "--prompt-tokens '9-3': write a number" in str(result.exception)
    assert "check --url" in str(run("http://127.0.0.1:1").exception)


@pytest.mark.parametrize("rate", ["inf", "nan"])
def test_a_rate_without_end_is_refused_with_the_option(rate: str) -> None:
    result = run("http://127.0.0.1:1", "--rate", rate)
    assert result.exit_code == 2
    assert "'--rate'" in result.output
