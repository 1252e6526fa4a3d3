"""Several requests for one gap and what is typed on in it, with engines that fail, clients that leave and steps that
raise: every answer is what its request would have been given alone, or the beginning of that where its user has typed
on, and all books are closed."""

from __future__ import annotations

import asyncio
from typing import Any

import hypothesis.strategies as st
import msgspec
from hypothesis import given

from contracts.errors import InternalError, RateLimited, RouterUnavailable
from tests.examples import examples
from tests.gateway.serving.client import Client
from tests.gateway.serving.harness import COMPLETION, Harness, harness
from tests.gateway.serving.test_continuations import FILE, FIM, PREFIX, fim_text
from tests.waiting import eventually

TOKENS = 12
"""Of the answer to the first prefix."""


class Asked(msgspec.Struct, frozen=True):
    """One request of a course."""

    typed: int
    """Characters behind PREFIX."""
    wrong: bool
    """Something else than the model would have written was typed."""
    stream: bool
    openai: bool
    leaves_at_write: int
    leaves_behind: int
    """Its client leaves once so many later ones have come; 0: it stays."""
    turns: int
    """Of the loop after it has come."""

    @property
    def prefix(self) -> str:
        return FILE[: len(PREFIX) + self.typed] + ("#" if self.wrong else "")

    @property
    def body(self) -> bytes:
        fields = {"model": "m", "prompt": self.prefix, "suffix": "", "stream": self.stream, "temperature": 0}
        return msgspec.json.encode({**fields, "max_tokens": 40})

    @property
    def alone(self) -> str:
        """The plain twin: what the engine of these tests answers it with."""
        return "".join(f" t{index}" for index in range(TOKENS)) if self.wrong else FILE[len(self.prefix) :]

    def text(self, client: Client) -> str | None:
        """What its client was answered with; None: an error."""
        answer = client.answer
        assert answer.complete, "who stays is answered to the end"
        if answer.status != 200 or (self.stream and answer.events[-1] != "[DONE]"):
            return None
        if not self.openai:
            return fim_text(client)
        if not self.stream:
            return str(answer.json["choices"][0]["text"])
        return "".join(choice["text"] for event in answer.events[:-1] for choice in event["choices"])


@st.composite
def courses(draw: st.DrawFn) -> list[Asked]:
    """Mostly one user who types on what is shown."""
    openai, typed, course = draw(st.booleans()), 0, []
    for _ in range(draw(st.integers(2, 5))):
        typed += draw(st.sampled_from([0, 1, 2, 4]))
        course.append(
            Asked(
                typed=typed,
                wrong=draw(st.integers(0, 7)) == 0,
                stream=draw(st.booleans()),
                openai=openai ^ (draw(st.integers(0, 7)) == 0),
                leaves_at_write=draw(st.sampled_from([0, 0, 0, 1, 2])),
                leaves_behind=draw(st.sampled_from([0, 0, 0, 1, 2])),
                turns=draw(st.sampled_from([0, 20, 200])),
            )
        )
    return course


ENGINES: st.SearchStrategy[dict[str, Any]] = st.one_of(
    st.just({}),
    st.sampled_from([{}, {"usage": False}]),
    st.fixed_dictionaries({"status": st.sampled_from([400, 429, 500])}),
    st.fixed_dictionaries({"die_after_tokens": st.integers(0, TOKENS - 1)}),
    st.fixed_dictionaries({"error_after_tokens": st.integers(1, TOKENS - 1)}),
    st.fixed_dictionaries({"abort_after_tokens": st.integers(0, TOKENS - 1)}),
)
ERRORS = st.sampled_from(
    [RateLimited("yours", retry_after_s=1), RouterUnavailable("away", retry_after_s=1), InternalError("defect")]
)


@examples(nightly=100)
@given(
    course=courses(),
    driver=st.sampled_from(["embedded", "openai"]),
    hangs_after=st.integers(0, TOKENS - 1),
    script=ENGINES,
    recovers=st.booleans(),
    raises=st.just({})
    | st.dictionaries(st.sampled_from(["reserve", "acquire", "placed", "closed", "settle"]), ERRORS, max_size=1),
)
def test_each_is_answered_as_if_alone_and_books_are_closed(
    course: list[Asked],
    driver: str,
    hangs_after: int,
    script: dict[str, Any],
    recovers: bool,
    raises: dict[str, Exception],
) -> None:
    async def run() -> None:
        async with harness(driver=driver, abort_drain_s=0.5) as platform:
            platform.script(tokens=TOKENS, file=FILE, hang_after_tokens=hangs_after, **script)
            if recovers:
                platform.engines[1].control(
                    b'{"status":200,"die_after_tokens":-1,"error_after_tokens":-1,"abort_after_tokens":-1}'
                )
            platform.faults.raises.update(raises)
            clients = [Client(asked.leaves_at_write) for asked in course]
            tasks = []
            for number, (asked, client) in enumerate(zip(course, clients, strict=True)):
                wire_format = COMPLETION if asked.openai else FIM
                tasks.append(asyncio.create_task(platform.serve(client, asked.body, wire_format)))
                for _ in range(asked.turns):
                    await asyncio.sleep(0)
                for before, earlier in enumerate(course[:number]):
                    if earlier.leaves_behind == number - before:
                        clients[before].leave()
            await go_on_until(platform, tasks)
            platform.require_balanced()
            require_nothing_in_flight(platform)
            for asked, client, task in zip(course, clients, tasks, strict=True):
                if client.connection.gone:
                    continue
                text = asked.text(client)
                if text is None:
                    assert script or raises
                elif task.result().superseded_by is not None:
                    assert asked.alone.startswith(text)
                else:
                    assert text == asked.alone

    with asyncio.Runner() as runner:
        runner.run(run())


async def go_on_until(platform: Harness, tasks: list[asyncio.Task[Any]]) -> None:
    """Engines that fell silent say the rest, until all requests have ended and no engine generates any more."""

    def over() -> bool:
        if all(task.done() for task in tasks) and not any(engine.live for engine in platform.engines):
            return True
        platform.go_on()
        return False

    await eventually(over)


def require_nothing_in_flight(platform: Harness) -> None:
    """What is left was generated to its end, and nobody reads it."""
    continuations = platform.serving.continuations
    recordings = [recording for place in continuations._places.values() for recording in place]
    assert set(recordings) == set(continuations._kept)
    assert not any(recording.readings for recording in recordings)
