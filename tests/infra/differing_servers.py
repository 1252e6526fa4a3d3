"""Servers that differ from TensorRT-LLM's in one thing each, by the checks of infra/verify/tensorrt_llm.sh that are to
find it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

import msgspec
import pytest
from aiohttp import web

from tests.fakes.tensorrt_llm import DONE, FIGURES, WINDOW, Alterable, Chunks, FakeTensorRTLLM
from tests.fakes.waiting_queue import WaitingQueue

Answer = tuple[int, Any]
"""Its status, and its body: decoded where it is JSON, else text."""
Change = Callable[[dict[str, Any], int, Any], Answer | None]
"""Of a request's body and its answer, another answer; None: it stays."""
CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"
NEVER_S = 10_000.0
WINDOWS = {"without max_tokens one after another", "with max_tokens beside one another"}
"""Not asked where window or memory are not known."""
QUEUED = {*WINDOWS, "the higher priority goes first"}
ALL_PLACES = {*QUEUED, "two that run are told as two"}
"""What a server that goes on for nobody has no place left for."""
CACHED = {"a prompt is cached by nobody first", "then by its own salt", "and not by another"}


class Differing(msgspec.Struct):
    """One difference. found: the checks that find it. perhaps: those that fail with it, by how fast things go."""

    found: set[str]
    make: Callable[[FakeTensorRTLLM, pytest.MonkeyPatch], None]
    perhaps: set[str] = msgspec.field(default_factory=set)


def answers(check: str, path: str, change: Change, perhaps: set[str] | None = None) -> Differing:
    """A server whose answers there are changed."""
    return Differing({check}, lambda fake, _: alter(fake, path, change), perhaps or set())


def alter(server: Alterable, path: str, change: Change) -> None:
    """Change its answers there, after all that changes them already."""
    before = server.altered

    async def altered(request: web.Request, answer: web.StreamResponse) -> web.StreamResponse:
        if before is not None:
            answer = await before(request, answer)
        if request.path != path or not isinstance(answer, web.Response):
            return answer
        assert isinstance(answer.body, bytes | None)
        text = (answer.body or b"").decode()
        decoded = msgspec.json.decode(text) if answer.content_type == "application/json" else text
        body = msgspec.json.decode(await request.read()) if request.method == "POST" else {}
        changed = change(body, answer.status, decoded)
        if changed is None:
            return answer
        status, said = changed
        if isinstance(said, str):
            return web.Response(status=status, text=said)
        return web.json_response(said, status=status)

    server.altered = altered


def status(code: int, where: Callable[[dict[str, Any]], bool] = lambda _: True) -> Change:
    """Another status, of requests whose body is so."""
    return lambda body, _, said: (code, said) if where(body) else None


def has(**fields: Any) -> Callable[[dict[str, Any]], bool]:
    """Whether a body has these; True stands for any value."""
    return lambda body: all(name in body and value in (True, body[name]) for name, value in fields.items())


def is_long(body: dict[str, Any]) -> bool:
    """Whether a prompt exceeds every window."""
    return len(str(body.get("messages"))) > 500_000


def said(what: Any, where: Callable[[dict[str, Any]], bool]) -> Change:
    """Another body, of requests that are so."""
    return lambda body, code, _: (code, what) if where(body) else None


def iterations(change: Callable[[dict[str, Any]], dict[str, Any]]) -> Change:
    """Other iterations."""
    return lambda _, code, told: (code, [change(one) for one in told])


def without(*names: str) -> Callable[[dict[str, Any]], dict[str, Any]]:
    """The same, but for these."""
    return lambda told: {name: value for name, value in told.items() if name not in names}


def replaced(old: str, new: str) -> Change:
    """Another page."""
    return lambda _, code, page: (code, page.replace(old, new))


def again() -> Change:
    """What was told is told once more where there is nothing new."""
    last: list[Any] = []

    def change(_: dict[str, Any], code: int, told: list[Any]) -> Answer:
        last[:] = told or last
        return code, list(last)

    return change


def chunks(check: str, name: str, method: Callable[..., Any], perhaps: set[str] | None = None) -> Differing:
    """A server that writes its events otherwise."""
    return Differing({check}, lambda _, patch: patch.setattr(Chunks, name, method), perhaps or set())


def events(check: str, change: Callable[[Chunks], None]) -> Differing:
    """A server whose streams begin otherwise."""

    def make(_: FakeTensorRTLLM, patch: pytest.MonkeyPatch) -> None:
        before = Chunks.__init__

        def init(self: Chunks, *given: Any, **named: Any) -> None:
            before(self, *given, **named)
            change(self)

        patch.setattr(Chunks, "__init__", init)

    return Differing({check}, make)


def attribute(check: str, name: str, value: Any, perhaps: set[str] | None = None) -> Differing:
    """A server of other settings."""
    return Differing({check}, lambda fake, patch: patch.setattr(fake, name, value), perhaps or set())


def queued(check: str, make: Callable[[], WaitingQueue]) -> Differing:
    """A server that has others wait."""
    return Differing({check}, lambda fake, patch: patch.setattr(fake, "queue", make()), QUEUED)


class FirstComeFirstServed(WaitingQueue):
    """Takes priorities and heeds none."""

    @contextlib.asynccontextmanager
    async def place(self, priority: float, tokens: int, leaving: asyncio.Task[None]) -> AsyncIterator[bool]:
        async with super().place(0.5, tokens, leaving) as placed:
            yield placed


class OneOfThem(WaitingQueue):
    """Keeps the whole window for answers of some length, too."""

    @contextlib.asynccontextmanager
    async def place(self, priority: float, tokens: int, leaving: asyncio.Task[None]) -> AsyncIterator[bool]:
        async with super().place(priority, WINDOW if 1_000 < tokens < 2_000 else tokens, leaving) as placed:
            yield placed


def _with_nulls(self: Chunks, choice: int, index: int, finish: str | None) -> bytes:
    return self._event({"index": choice, "delta": {"content": f" t{index}"}, "finish_reason": finish}, index + 1)


def _other_ids(events: Chunks) -> None:
    events._one = not events._one


def _only_at_the_end(events: Chunks) -> None:
    events._continuous = False


def _slowly(fake: FakeTensorRTLLM, _: pytest.MonkeyPatch) -> None:
    before = fake.altered

    async def altered(request: web.Request, answer: web.StreamResponse) -> web.StreamResponse:
        if request.path == "/metrics":
            await asyncio.sleep(2)
        return answer if before is None else await before(request, answer)

    fake.altered = altered


OF_BOTH: tuple[Differing, ...] = (
    answers("health answers 200", "/health", status(503)),
    answers("a field it does not know is a 400", CHAT, status(422, has(store=True))),
    answers("suffix is a 400", COMPLETIONS, status(422, has(suffix=True))),
    answers("its own refusals are flat", COMPLETIONS, said({"error": {"message": "no"}}, has(suffix=True))),
    answers("completions know no cache_salt", COMPLETIONS, status(200, has(cache_salt=True))),
    answers("chat does", CHAT, status(400, has(cache_salt="x"))),
    answers("tool_choice required is a 400", CHAT, status(200, has(tool_choice="required"))),
    answers("priority", CHAT, status(418, has(priority=0.6))),
    answers("min_tokens and stop_token_ids are taken", CHAT, status(400, has(stop_token_ids=True))),
    answers("a prompt that is too long is a 400", CHAT, status(413, is_long)),
    answers("in a known sentence", CHAT, said({"message": "It is too long."}, is_long), WINDOWS),
    attribute("a stream ends with [DONE]", "done", b"", perhaps={"figures come behind [DONE]"}),
    chunks("the role's event ends in a space", "role", lambda self, _: self._event({"index": 0, "delta": {}}, 0)),
    chunks("what is null is left out", "token", _with_nulls),
    events("every event tells the usage", _only_at_the_end),
    chunks(
        "the last event has no choices", "usage", lambda self, tokens: self._event({"index": 0}, tokens),
        {"every event tells the usage"},
    ),
    chunks(
        "max_tokens is kept", "usage_of",
        lambda self, tokens: {"completion_tokens": tokens + 9, "prompt_tokens_details":
                              {"cached_tokens": self._script.cached_tokens}},
    ),
    events("ids of a stream", _other_ids),
    attribute("a prompt is cached by nobody first", "_reads_again", lambda _: True, perhaps=CACHED),
    attribute("then by its own salt", "_reads_again", lambda _: False, perhaps=CACHED),
    Differing(
        {"and not by another"},
        lambda fake, patch: patch.setattr(
            fake, "_reads_again", lambda body: FakeTensorRTLLM._reads_again(fake, {**body, "cache_salt": ""})
        ),
        CACHED,
    ),
    answers("iterations are told (enable_iter_perf_stats)", "/metrics", iterations(without("numQueuedRequests"))),
    answers("with the memory that is used", "/metrics", iterations(lambda one: {**one, "kvCacheStats": {}}), WINDOWS),
    answers(
        "maxNumActiveRequests is the batch size", "/metrics",
        iterations(lambda one: {**one, "maxNumActiveRequests": 2}),
    ),
    answers("and told once", "/metrics", again()),
    attribute("who leaves is not generated for two seconds later", "_poll_s", 5.0, perhaps=ALL_PLACES),
    attribute("who leaves is not generated for two seconds later", "_poll_s", NEVER_S, perhaps=ALL_PLACES),
    answers(
        "two that run are told as two", "/metrics",
        iterations(lambda one: {**one, "numActiveRequests": min(one["numActiveRequests"], 1)}),
    ),
    queued("without max_tokens one after another", lambda: WaitingQueue(4, 4 * WINDOW)),
    queued("with max_tokens beside one another", lambda: OneOfThem(4, WINDOW)),
)  # fmt: skip
OF_THE_OLDER = (
    answers("/perf_metrics", "/perf_metrics", status(404)),
    answers("/server_info", "/server_info", status(200)),
    answers("which says so in a flat body", CHAT, said({"error": "no"}, has(store=True))),
    attribute("figures come behind [DONE]", "figures", FIGURES),
    attribute("iterations are told once none has come for two seconds", "_silence_s", 0.0),
    answers("five metrics, none of tokens", "/prometheus/metrics", replaced("time_to_first", "time_until_first")),
    answers("labels are undefined", "/prometheus/metrics", replaced("undefined", "llama")),
)
OF_THE_NEWER = (
    answers("/perf_metrics", "/perf_metrics", status(200)),
    answers("/server_info", "/server_info", status(404)),
    answers("which says so in one string", CHAT, said({"message": "no"}, has(store=True))),
    attribute("figures come behind [DONE]", "figures", b""),
    Differing({"iterations are told once none has come for two seconds"}, _slowly),
    answers("tokens are counted", "/prometheus/metrics", replaced("generation_tokens", "tokens")),
    answers("labels name the model", "/prometheus/metrics", replaced("llama-70b", "undefined")),
    queued("the higher priority goes first", lambda: FirstComeFirstServed(4, WINDOW)),
)
OF_FRONTS: tuple[tuple[str, str, Change], ...] = (
    ("health answers 200", "/health", status(503)),
    ("a front has no /metrics", "/metrics", status(200)),
    ("and no /v1/models", "/v1/models", status(200)),
    ("/perf_metrics", "/perf_metrics", status(404)),
    ("/prometheus/metrics", "/prometheus/metrics", status(418)),
    ("which counts requests", "/prometheus/metrics", replaced("total_requests", "requests")),
    ("and no tokens", "/prometheus/metrics", lambda _, code, page: (code, page + "trtllm_prompt_tokens_total 1.0\n")),
    ("a field it does not know is a 400", CHAT, status(422, has(store=True))),
    ("which says so in one string", CHAT, said({"detail": "no"}, has(store=True))),
    ("cache_salt is taken", CHAT, status(400, has(cache_salt=True))),
    ("two choices are a 500", CHAT, status(400, has(n=2))),
    ("that says why", CHAT, said({"detail": "no"}, has(n=2))),
    ("a prompt that is too long is a 500", CHAT, status(400, is_long)),
    ("that says what its context server said", CHAT, lambda body, code, told: _other_words(code, told, is_long(body))),
)
OF_PASSED_ON: dict[str, Callable[[bytes], bytes]] = {
    "a stream ends with [DONE]": lambda some: some.replace(DONE, b""),
    "every event tells the usage": lambda some: some.replace(b'"usage":', b'"used":', 1),
    "the last event has no choices": lambda some: some.replace(b'"choices":[]', b'"choices":[{}]'),
    "max_tokens is kept": lambda some: some.replace(b'"completion_tokens":8', b'"completion_tokens":9'),
}
"""Of a generation server's bytes, all together."""


def _other_words(code: int, told: Any, long: bool) -> Answer | None:
    """Those of the other generation."""
    if not long:
        return None
    return code, {"detail": "no" if "splited" in str(told) else "`splited_prompt_len`"}


def rounds(differing: Sequence[Differing]) -> list[list[Differing]]:
    """As few as leave each check one difference alone."""
    made: list[list[Differing]] = []
    for one in differing:
        for each in made:
            if all(not (one.found | one.perhaps) & (other.found | other.perhaps) for other in each):
                each.append(one)
                break
        else:
            made.append([one])
    return made
