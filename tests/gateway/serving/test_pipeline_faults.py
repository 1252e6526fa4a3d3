"""Whatever fails or leaves, wherever, books are closed: random courses of a request with several things going wrong."""

from __future__ import annotations

import asyncio
from typing import Any

import hypothesis.strategies as st
import msgspec
from hypothesis import given

from contracts.errors import InternalError, JournalUnavailable, RateLimited, RouterUnavailable
from contracts.usage import Finish
from gateway.wire.config import RequestConfig
from gateway.wire.mistral.format import FimFormat
from tests.examples import examples
from tests.gateway.serving.client import Client
from tests.gateway.serving.harness import body, harness

TOKENS = 12
STEPS = ("reserve", "opened", "acquire", "placed", "closed", "settle")
ERRORS = (
    RateLimited("yours", retry_after_s=1),
    JournalUnavailable("disk", retry_after_s=1),
    RouterUnavailable("away", retry_after_s=1),
    InternalError("defect"),
)
ENGINES: st.SearchStrategy[dict[str, Any]] = st.one_of(
    st.just({}),
    st.just({"usage": False}),
    st.fixed_dictionaries({"status": st.sampled_from([400, 404, 429, 500, 503])}),
    st.fixed_dictionaries({"die_after_tokens": st.integers(0, TOKENS - 1)}),
    st.fixed_dictionaries({"error_after_tokens": st.integers(1, TOKENS - 1)}),
    st.fixed_dictionaries({"abort_after_tokens": st.integers(0, TOKENS - 1)}),
)


@examples(nightly=150)
@given(
    stream=st.booleans(),
    choices=st.integers(1, 2),
    driver=st.sampled_from(["sglang", "openai"]),
    split=st.sampled_from(["event", "joined", "byte"]),
    script=ENGINES,
    recovers=st.booleans(),
    raises=st.dictionaries(st.sampled_from(STEPS), st.sampled_from(ERRORS), max_size=2),
    leaves_at=st.none() | st.sampled_from(STEPS),
    leaves_at_write=st.integers(0, 8),
)
def test_books_are_closed_whatever_happens(
    stream: bool,
    choices: int,
    driver: str,
    split: str,
    script: dict[str, Any],
    recovers: bool,
    raises: dict[str, Exception],
    leaves_at: str | None,
    leaves_at_write: int,
) -> None:
    async def course() -> None:
        async with harness(driver=driver, abort_drain_s=0.5) as platform:
            platform.script(tokens=TOKENS, split=split, **script)
            if recovers:
                platform.engines[1].control(
                    b'{"status":200,"die_after_tokens":-1,"error_after_tokens":-1,"abort_after_tokens":-1}'
                )
            client = Client(leaves_at_write)
            platform.faults.raises.update(raises)
            if leaves_at is not None:
                platform.faults.calls[leaves_at] = client.leave
            await platform.serve(client, body(stream=stream, n=choices, max_tokens=50))
            await platform.engines_idle()
            platform.require_balanced()
            assert len(platform.traces.seen) == 1
            if client.connection.gone:
                return
            answer = client.answer
            assert answer.complete, "who stays is answered to the end"
            good = bool(platform.journal.records) and platform.journal.records[-1].finish is Finish.COMPLETE
            good = good and not {"closed", "settle"} & (set(raises) - set(platform.faults.raises))
            if stream and answer.headers["content-type"].startswith("text/event-stream"):
                assert (answer.events[-1] == "[DONE]") is good
            else:
                assert (answer.status == 200) is good

    with asyncio.Runner() as runner:
        runner.run(course())


FIM = FimFormat(RequestConfig())
KEYSTROKE = {"model": "m", "prompt": "def f():\n    ret", "suffix": "\n", "max_tokens": 50}


@examples(nightly=100)
@given(
    stream=st.booleans(),
    driver=st.sampled_from(["embedded", "openai"]),
    split=st.sampled_from(["event", "joined", "byte"]),
    script=ENGINES,
    raises=st.dictionaries(st.sampled_from(STEPS), st.sampled_from(ERRORS), max_size=1),
    leaves_at=st.none() | st.sampled_from(STEPS),
    typed_on_at=st.sampled_from(STEPS) | st.integers(1, TOKENS),
)
def test_books_are_closed_also_of_who_types_on(
    stream: bool,
    driver: str,
    split: str,
    script: dict[str, Any],
    raises: dict[str, Exception],
    leaves_at: str | None,
    typed_on_at: str | int,
) -> None:
    async def course() -> None:
        async with harness(driver=driver, abort_drain_s=0.5) as platform:
            platform.script(tokens=TOKENS, split=split, **script)
            client = Client()
            platform.faults.raises.update(raises)

            def supersede() -> None:
                for siblings in platform.supersession._in_flight.values():
                    for flight in siblings.values():
                        flight.supersede("req_newer")

            def type_on() -> None:
                """A newer request is a task of its own."""
                asyncio.get_running_loop().call_soon(supersede)

            if leaves_at is not None:
                platform.faults.calls[leaves_at] = client.leave
            if isinstance(typed_on_at, str):
                platform.faults.calls[typed_on_at] = type_on
            else:
                platform.script(tokens=TOKENS, split=split, inter_token_s=0.001, **script)
                platform.engines[0].wait({"tokens": str(typed_on_at)}, type_on)
            await platform.serve(client, msgspec.json.encode({**KEYSTROKE, "stream": stream}), FIM)
            await platform.engines_idle()
            platform.require_balanced()
            assert len(platform.supersession) == 0
            if not client.connection.gone:
                assert client.answer.complete, "who stays is answered to the end"

    with asyncio.Runner() as runner:
        runner.run(course())
