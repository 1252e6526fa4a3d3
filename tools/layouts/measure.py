"""Has a server complete lines in each layout, then types into some of them key by key."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import msgspec

from contracts.errors import EngineFailed
from evals.slices.code_edits import Edit, exact, similarity
from gateway.wire.gap import Gap
from tools.bench.answer import Answer
from tools.bench.client import Client, Refused
from tools.layouts.layout import Layout, Prompt, Prompts
from tools.layouts.verdict import Answers

PATH = "/completions"
AT_ONCE = 4
"""Requests in flight while lines are completed; keystrokes are sent one after the other, as a person types."""
TYPED_LINES, KEYS = 8, 6
"""Lines into which keys are typed, and the keys in each after its first request."""
PAUSES_S = (1.0, 2.0, 4.0, 8.0, 16.0)
"""Pauses before each retry of a request that was refused temporarily."""
LATER = ("429", "503")

Tell = Callable[[str, int, int], None]
"""Called with the current activity, how much of it is done, and its total."""


class Completed(NamedTuple):
    """A line's text in one layout. healed: the output had to begin with the half-typed part of a word."""

    text: str
    healed: bool


class Measured(NamedTuple):
    """The lines that were completed in every layout, and their answers by the layout's name. healed: number of lines
    whose half-typed word was healed, as the gateway does in every layout."""

    edits: Sequence[Edit]
    answers: dict[str, Answers]
    healed: int


class Completions:
    """One model of a server. url: without `/v1`. pauses_s: see `PAUSES_S`."""

    def __init__(self, url: str, key: str, model: str, pauses_s: Sequence[float] = PAUSES_S) -> None:
        self._url = url
        self._model = model
        self._pauses_s = pauses_s
        self.client = Client(url, key, PATH)

    async def ask(self, prompt: Prompt) -> tuple[str, Answer]:
        """The greedy text of a prompt up to the end of its line. Raises EngineFailed with the server's refusal."""
        body = body_of(self._model, prompt)
        for pause_s in (*self._pauses_s, None):
            heard: list[str] = []
            try:
                answer = await self.client.ask(body, heard.append)
                return "".join(heard), answer
            except Refused as refused:
                if pause_s is None or not refused.fault.startswith(LATER):
                    raise EngineFailed(f"{self._url}: a completion was refused ({refused.fault}): {refused}") from None
            await asyncio.sleep(pause_s)
        raise AssertionError("the last try returns or raises")


def body_of(model: str, prompt: Prompt) -> dict[str, Any]:
    """A request that a gateway passes on as if it had laid out the gap itself."""
    body: dict[str, Any] = {
        "model": model, "prompt": prompt.ids, "max_tokens": prompt.max_tokens, "temperature": 0, "stop": prompt.stop,
        "stream": True, "stream_options": {"include_usage": True},
    }  # fmt: skip
    if prompt.begins_with:
        body["begins_with"] = prompt.begins_with
    if prompt.stop_ids:
        body["stop_token_ids"] = prompt.stop_ids
    return body


async def measure(
    server: Completions,
    prompts: Prompts,
    layouts: Sequence[Layout],
    edits: Sequence[Edit],
    gaps: Sequence[Gap],
    stop: asyncio.Event,
    tell: Tell,
) -> Measured:
    """edits: the lines, at least one; gaps: their gaps with snippets. stop: ends early and keeps the lines so far.

    Raises EngineFailed for a request that is refused, or still refused after the pauses.
    """
    async with server.client:
        found = await _completed(server, prompts, layouts, gaps, stop, tell)
        typed = await _typed(server, prompts, layouts, edits[:TYPED_LINES], gaps, stop, tell)
    cached = any(key.cached_tokens for keys in typed for key in keys)
    whole = [
        (edit, [one for one in line if one is not None])
        for edit, line in zip(edits, found, strict=True)
        if None not in line
    ]
    answers = {}
    for at, (layout, keys) in enumerate(zip(layouts, typed, strict=True)):
        answers[layout.name] = Answers(
            [exact(edit, line[at].text) for edit, line in whole],
            [similarity(edit, line[at].text) for edit, line in whole],
            [key.first_s or key.ended_s or 0.0 for key in keys],
            [(key.prompt_tokens or 0) - key.cached_tokens for key in keys] if cached else (),
        )
    return Measured([edit for edit, _ in whole], answers, sum(line[0].healed for _, line in whole))


async def _completed(
    server: Completions,
    prompts: Prompts,
    layouts: Sequence[Layout],
    gaps: Sequence[Gap],
    stop: asyncio.Event,
    tell: Tell,
) -> list[list[Completed | None]]:
    """Each line's completion in every layout; None if it was stopped first."""
    done, total = 0, len(layouts) * len(gaps)
    slots = asyncio.Semaphore(AT_ONCE)

    async def one(layout: Layout, gap: Gap) -> Completed | None:
        nonlocal done
        async with slots:
            if stop.is_set():
                return None
            prompt = await prompts.prompt(layout, gap)
            text, _ = await server.ask(prompt)
        done += 1
        tell("completing lines", done, total)
        return Completed(text, bool(prompt.begins_with))

    try:
        async with asyncio.TaskGroup() as group:
            # each line in every layout, then the next line: parts that layouts share are still in the engine's cache
            tasks = [[group.create_task(one(layout, gap)) for layout in layouts] for gap in gaps]
    except ExceptionGroup as failed:
        raise failed.exceptions[0] from None
    return [[task.result() for task in line] for line in tasks]


async def _typed(
    server: Completions,
    prompts: Prompts,
    layouts: Sequence[Layout],
    edits: Sequence[Edit],
    gaps: Sequence[Gap],
    stop: asyncio.Event,
    tell: Tell,
) -> list[list[Answer]]:
    """The keystrokes of each layout, without each line's first request, which reads the file."""
    found: list[list[Answer]] = [[] for _ in layouts]
    for number, (edit, gap) in enumerate(zip(edits, gaps, strict=False)):
        if stop.is_set():
            break
        tell("typing into lines", number, len(edits))
        for keys, layout in zip(found, layouts, strict=True):
            for typed in range(min(KEYS, len(edit.wanted) - 1) + 1):
                typed_gap = msgspec.structs.replace(gap, prefix=edit.text[: edit.cursor + typed])
                _, answer = await server.ask(await prompts.prompt(layout, typed_gap))
                if typed:
                    keys.append(answer)
    else:
        tell("typing into lines", len(edits), len(edits))
    return found
