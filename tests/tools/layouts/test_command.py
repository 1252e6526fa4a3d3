"""`slipstream usage autocomplete fit` on an engine whose answers and cache are known."""

from __future__ import annotations

import contextlib
import http.server
import os
import signal
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
import tokenizers
from click.testing import CliRunner, Result

from contracts.errors import ConfigError, EngineFailed
from slipstream.commands.autocomplete_fit import fit
from tests.deployment import ROOT
from tools.layouts.layout import Prompt
from tools.layouts.measure import Completions

MODEL = ROOT / "models" / "slipstream-code"
"""Its marks; its present layout is `spm-after`."""
PREFIX, SUFFIX, MIDDLE = "<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>"
WORDS = ("amber", "basil", "cedar", "delta", "ember", "fjord", "grove", "heron")


class Engine:
    """Writes the rest of a line for prompts whose layout it learnt, and keeps every prompt in its cache."""

    def __init__(
        self, learnt: str, texts: Sequence[str], refusals: Sequence[tuple[int, str]] = (), healing: str | None = None
    ) -> None:
        """learnt: `psm`, or `all`. refusals: status and code of the first requests. healing: what its gateway lists; a
        word's half-typed part is then no part of a prompt that it can continue."""
        self._learnt = learnt
        self._texts = texts
        self._tokens = tokenizers.Tokenizer.from_file(str(MODEL / "tokenizer.json"))
        self._seen: list[list[int]] = []
        self.refusals = list(refusals)
        self.healing = healing
        self.requests = 0
        self.interrupted_at = 0

    def answer(self, ids: list[int], begins_with: str = "") -> tuple[str, int]:
        """Text and cached tokens."""
        self.requests += 1
        if self.requests == self.interrupted_at:
            os.kill(os.getpid(), signal.SIGINT)
        cached = max((_common(ids, other) for other in self._seen), default=0)
        self._seen.append(ids)
        text = self._tokens.decode(ids, skip_special_tokens=False)
        before, typed = text.split(MIDDLE)
        learnt = self._learnt == "all" or (before.startswith(PREFIX) and not typed)
        prefix = before.split(PREFIX)[1].split(SUFFIX)[0] + typed + begins_with
        learnt = learnt and (begins_with != "" or self.healing is None or not prefix[-1:].isalpha())
        found = [known for known in self._texts if known.startswith(prefix)]
        return (found[0][len(prefix) :].split("\n")[0] if learnt else "wrong"), min(cached, len(ids) - 1)


def _common(one: list[int], other: list[int]) -> int:
    return next((at for at, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))


@contextlib.contextmanager
def serving(engine: Engine) -> Iterator[str]:
    lock = threading.Lock()

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            listed = {"id": "coder", "max_model_len": 4_096}
            if engine.healing is not None:
                listed |= {"healing": engine.healing}
            self._send(200, msgspec.json.encode({"data": [listed]}))

        def do_POST(self) -> None:
            body = msgspec.json.decode(self.rfile.read(int(self.headers["content-length"])))
            with lock:
                if engine.refusals:
                    status, code = engine.refusals.pop(0)
                    self._send(status, msgspec.json.encode({"error": {"message": "not now", "code": code}}))
                    return
                text, cached = engine.answer(body["prompt"], body.get("begins_with", ""))
            usage = {
                "prompt_tokens": len(body["prompt"]), "completion_tokens": 1,
                "prompt_tokens_details": {"cached_tokens": cached},
            }  # fmt: skip
            events: list[Any] = [{"choices": [{"text": half}]} for half in (text[:3], text[3:])]
            sent = [msgspec.json.encode(event) for event in (*events, {"choices": [], "usage": usage})]
            self._send(200, b"".join(b"data: " + event + b"\n\n" for event in (*sent, b"[DONE]")))

        def _send(self, status: int, body: bytes) -> None:
            self.send_response(status)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as running:
        thread = threading.Thread(target=running.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield f"http://127.0.0.1:{running.server_address[1]}/v1"
        finally:
            running.shutdown()
            thread.join()


@pytest.fixture
def code(tmp_path: Path) -> Path:
    """Eight files of eight lines below their heads, none of which begins like another's."""
    folder = tmp_path / "code"
    folder.mkdir()
    for word in WORDS:
        lines = [f"{other}_{word} = measure_{other}({number}, '{word}')" for number, other in enumerate(WORDS)]
        (folder / f"{word}.py").write_text("\n".join([f"# of {word}", "import math", "", *lines, ""]))
    return folder


def texts(folder: Path) -> list[str]:
    return [path.read_text() for path in sorted(folder.iterdir())]


def run(url: str, folder: Path, *arguments: str) -> Result:
    given = ["coder", "--from", str(folder), "--url", url, "--tokenizer", str(MODEL), "--lines", "24", *arguments]
    return CliRunner().invoke(fit, given)


def test_a_layout_that_is_proved_better_is_chosen_with_its_settings(code: Path) -> None:
    engine = Engine("psm", texts(code))
    with serving(engine) as url:
        result = run(url, code, "--layouts", "psm,psm-after+files", "--json")
    assert result.exit_code == 0, result.output
    report = msgspec.json.decode(result.stdout)
    verdict = report["verdict"]
    assert (verdict["present"], verdict["layout"], verdict["reason"]) == ("spm-after", "psm", "better")
    assert (verdict["lines"], verdict["files"]) == (24, 8)
    figures = {each["layout"]: each for each in verdict["standings"]}
    assert [(figures[name]["exact"], figures[name]["difference"]) for name in ("psm", "psm-after+files")] == [
        (1.0, 1.0),
        (0.0, 0.0),
    ]
    assert figures["psm"]["similarity"] == 1.0 > figures["spm-after"]["similarity"]
    after, before = (figures[name]["computed_tokens"] for name in ("spm-after", "psm"))
    assert after <= 3 < 20 < before, "psm computes the suffix again for each key"
    order, line = report["settings"]
    assert order.startswith(f'{MODEL}/tokenizer_config.json: "fim_order": "psm"')
    assert 'in [[models]] of coder: fim = { typed_line = "before_middle" }' in line
    assert "completing lines" in result.stderr


def test_the_present_layout_stays_where_no_other_is_proved_better(code: Path) -> None:
    with serving(Engine("all", texts(code))) as url:
        result = run(url, code, "--layouts", "psm")
    assert result.exit_code == 0, result.output
    first, where, healing, *rest = result.stdout.splitlines()
    assert first.startswith("coder: keep spm-after, the present layout (100.0% of the lines exact). No other layout is")
    assert where == f"24 lines of 8 files of {code}; preferably at least 50 files (--from)"
    assert healing.startswith("No half-typed word was healed: the server does not list `healing` for the model")
    assert any(line.startswith("* spm-after") for line in rest)
    assert "To use it" not in result.stdout


@pytest.mark.parametrize(("healing", "how"), [("word", "the whole typed"), ("tokens", "the last typed tokens again, ")])
def test_half_typed_words_are_healed_as_the_gateway_heals_them(code: Path, healing: str, how: str) -> None:
    """The engine writes nothing right behind a half-typed word that is in its prompt."""
    engine = Engine("all", texts(code), healing=healing)
    with serving(engine) as url:
        told = run(url, code, "--layouts", "psm")
        report = msgspec.json.decode(run(url, code, "--layouts", "psm", "--json").stdout)
    assert told.exit_code == 0, told.output
    assert report["healed"]["how"] == healing
    lines = report["healed"]["lines"]
    assert 12 < lines <= 24
    assert (
        f"The half-typed word was healed in {lines} of 24 lines, as the gateway does: the engine generated {how}"
        in (told.stdout)
    )
    for each in report["verdict"]["standings"]:
        assert each["exact"] >= lines / 24, "of a word that no token continues, the engine writes nothing"
        assert each["exact"] == 1.0 or healing == "tokens"


def test_ctrl_c_gives_the_report_of_the_lines_so_far(code: Path) -> None:
    engine = Engine("all", texts(code))
    engine.interrupted_at = 12
    with serving(engine) as url:
        result = run(url, code, "--layouts", "psm", "--json")
    assert result.exit_code == 0, result.output
    verdict = msgspec.json.decode(result.stdout)["verdict"]
    assert 4 <= verdict["lines"] < 12
    assert {each["computed_tokens"] for each in verdict["standings"]} == {None}


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (
            ("--layouts", "smp"),
            "--layouts: the model has no layout 'smp'; layouts: psm, psm-after, spm, spm-after, psm+",
        ),
        (("--tokenizer", str(ROOT / "models" / "slipstream-chat")), "has no fill-in-the-middle tokens"),
    ],
)
def test_what_cannot_be_fitted_is_named(code: Path, arguments: tuple[str, ...], said: str) -> None:
    engine = Engine("all", ())
    with serving(engine) as url:
        result = run(url, code, *arguments)
    assert isinstance(result.exception, ConfigError)
    assert said in result.exception.message
    assert engine.requests == 0


async def test_a_request_refused_for_now_is_repeated_and_a_wrong_one_is_not(code: Path) -> None:
    limited, wrong = (429, "rate_limit_exceeded"), (400, "context_length_exceeded")
    ids = tokenizers.Tokenizer.from_file(str(MODEL / "tokenizer.json")).encode(f"{PREFIX}#{SUFFIX}{MIDDLE}").ids
    prompt = Prompt(tuple(ids), begins_with="", stop=("\n",), stop_ids=(), max_tokens=1)
    engine = Engine("all", texts(code), [limited, limited, wrong, limited, limited, limited])
    with serving(engine) as url:
        server = Completions(url.removesuffix("/v1"), "", "coder", pauses_s=(0.0, 0.0))
        async with server.client:
            with pytest.raises(EngineFailed, match="400 context_length_exceeded"):
                await server.ask(prompt)
            with pytest.raises(EngineFailed, match="429 rate_limit_exceeded"):
                await server.ask(prompt)
            assert (await server.ask(prompt))[0].startswith(" of amber")
    assert engine.requests == 1
