"""The embedded engine behind a hostile request: a refusal by name, and nobody else's request is touched."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator
from typing import Any

import msgspec
import numpy as np
import pytest
import torch

from contracts.errors import (
    EngineFailed,
    InternalError,
    InvalidField,
    InvalidJson,
    Overloaded,
    RequestError,
    SlipstreamError,
)
from engines.embedded.config import EngineConfig, GrammarConfig
from engines.embedded.grammar.compiler import GrammarCompiler
from engines.embedded.grammar.guide import Guide
from engines.embedded.grammar.spec import GrammarSpec, ebnf_spec, regex_spec, schema_spec
from engines.embedded.http.app import App
from engines.embedded.http.bodies import ChatBody, CompletionBody, decode_body
from engines.embedded.http.decode import Decoder
from engines.embedded.http.errors import error_answer
from engines.embedded.sampling_defaults import SamplingDefaults
from engines.tokenizer.tokenizer import Tokenizer
from tests.engines.embedded.tiny import SHIPPED
from tests.hostile.corpus import deep
from tests.waiting import GUARD_S, eventually

CHAT = SHIPPED / "slipstream-chat"
CONFIG = GrammarConfig()
PATTERNS = {"anyOf": [{"type": "string", "pattern": f".*a.{{{length}}}b"} for length in range(300)]}
"""300 patterns that each must remember all of what went before: 13 kB, compiled in milliseconds."""
SLOW_BURNING = ".*a.{40}b"
"""It begins harmless; each token adds states to the lexer until there are too many."""


@pytest.fixture(scope="module")
def compiler() -> Iterator[GrammarCompiler]:
    compiler = GrammarCompiler(CHAT, 2_048, Tokenizer.load(CHAT).end_ids, CONFIG)
    yield compiler
    compiler.close()


@pytest.mark.parametrize(
    ("error", "status"), [(InternalError("x"), 500), (Overloaded("x"), 503), (EngineFailed("x"), 500)]
)
def test_a_defect_is_not_told_as_overload(error: SlipstreamError, status: int) -> None:
    told, body = error_answer(error)
    answer = msgspec.json.decode(body)
    assert (told, answer["code"]) == (status, status)
    assert answer["type"] == ("InternalServerError" if status == 500 else "ServiceUnavailableError")


async def test_an_unexpected_exception_is_answered_with_500() -> None:
    app = App(_Service(), token=None)  # type: ignore[arg-type]
    sent: list[dict[str, Any]] = []

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)

    async def receive() -> dict[str, Any]:
        raise ZeroDivisionError

    scope = {"type": "http", "method": "POST", "path": "/abort_request", "headers": [], "query_string": b""}
    await app(scope, receive, send)
    assert sent[0]["status"] == 500


class _Service:
    """As much of a service as the routes need to be made."""

    config = EngineConfig(model=str(CHAT))
    sampling_defaults = SamplingDefaults()
    tokenizer = Tokenizer.load(CHAT)
    name = "chat"
    context_tokens = 2_048
    pooling = None

    class model:  # noqa: N801
        vocab_size = 2_048


@pytest.mark.parametrize("levels", [1_200, 100_000])
def test_a_deep_body_is_refused(levels: int) -> None:
    body = b'{"model":"m","messages":[{"role":"user","content":%b}]}' % deep(levels)
    with pytest.raises(InvalidJson, match="too deeply"):
        decode_body(body, ChatBody)


@pytest.mark.parametrize("name", ["1" * 4_301, "٣" * 4_301, "2048", "-1", "1e3"])
async def test_a_bias_for_what_is_no_token_id_is_refused(name: str) -> None:
    decoder = Decoder(_Service())  # type: ignore[arg-type]
    body = decode_body(msgspec.json.encode({"model": "chat", "prompt": "x", "logit_bias": {name: 1.0}}), CompletionBody)
    with pytest.raises(InvalidField) as caught:
        await decoder.completion(body)
    assert caught.value.param == "logit_bias"
    assert len(caught.value.message) < 200


@pytest.mark.parametrize(
    "text", ["A - at `$.messages", "A - at `$.messages`", "A - at `$." + "[" * 30_000, "x" * 2_000_000]
)
def test_a_path_that_the_client_wrote_is_no_path(text: str) -> None:
    for field, value, param in (("tool_choice", text, "tool_choice"), (text, 1, text)):
        with pytest.raises(RequestError) as caught:
            decode_body(msgspec.json.encode({"model": "m", "messages": [{}], field: value}), ChatBody)
        assert caught.value.param == (param if len(param) <= 200 else f"{param[:200]}…")
        assert len(caught.value.message) < 500


async def test_a_grammar_that_explodes_is_refused_before_its_first_token(compiler: GrammarCompiler) -> None:
    with pytest.raises(InvalidField, match="too complex") as caught:
        await compiler.compile(schema_spec(PATTERNS, "response_format.json_schema", CONFIG))
    assert caught.value.param == "response_format.json_schema"


NEVER_COMPILED = "start: A\nA: " + " & ".join(f"/.*a.{{{length}}}b.*/" for length in range(2, 40))
"""800 bytes of Lark whose lexer nobody has seen finished: llguidance's limits do not bound its making."""
NEVER_COMPILED_SCHEMA = {"allOf": [{"type": "string", "pattern": f".*a.{{{length}}}b.*"} for length in range(60)]}
QUICK = msgspec.structs.replace(CONFIG, compile_timeout_s=1.0, compile_wait_s=GUARD_S)
"""A process that was killed starts again, which takes seconds on a busy machine."""


@pytest.mark.parametrize(
    "spec",
    [ebnf_spec(NEVER_COMPILED, "ebnf", CONFIG), schema_spec(NEVER_COMPILED_SCHEMA, "json_schema", CONFIG)],
    ids=["lark", "schema"],
)
async def test_a_grammar_that_never_compiles_is_refused_and_the_next_one_compiled(spec: GrammarSpec) -> None:
    compiler = GrammarCompiler(CHAT, 2_048, Tokenizer.load(CHAT).end_ids, QUICK)
    async with asyncio.timeout(GUARD_S):
        with pytest.raises(InvalidField, match="longer than 1 s") as caught:
            await compiler.compile(spec, "attacker")
        assert caught.value.param == spec.field

        async def next_one() -> Guide | None:
            with contextlib.suppress(InvalidField):  # a busy machine may take longer for any grammar
                return await compiler.compile(regex_spec("[ab]{3}", "regex", CONFIG), "other")
            return None

        assert not (await eventually(next_one)).exhausted
    compiler.close()


async def test_who_has_many_slow_grammars_waits_behind_them_alone() -> None:
    compiler = GrammarCompiler(CHAT, 2_048, Tokenizer.load(CHAT).end_ids, QUICK)
    over: list[str] = []

    async def ask(spec: GrammarSpec, salt: str) -> None:
        with contextlib.suppress(InvalidField):
            await compiler.compile(spec, salt)
        over.append(salt)

    async with asyncio.timeout(GUARD_S), asyncio.TaskGroup() as group:
        for number in range(4):
            group.create_task(ask(ebnf_spec(f"{NEVER_COMPILED} & /.{{{number + 60}}}/", "ebnf", CONFIG), "attacker"))
        group.create_task(ask(regex_spec("[ab]{3}", "regex", CONFIG), "other"))
    assert over.index("other") <= 1
    compiler.close()


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "object"},
        {"type": "array", "items": {"type": "string", "format": "date-time"}, "maxItems": 100},
        {"type": "object", "properties": {f"field_{n}": {"type": "string", "maxLength": 200} for n in range(60)}},
        {"anyOf": [{"type": "string", "pattern": f"^[a-z]{{1,30}}-{n}$"} for n in range(300)]},
    ],
)
async def test_grammars_as_people_write_them_pass_the_rehearsal(
    compiler: GrammarCompiler, schema: dict[str, Any]
) -> None:
    assert not (await compiler.compile(schema_spec(schema, "f", CONFIG))).exhausted


def follow(guide: Guide, tokens: int, seed: int) -> str | None:
    """Let chance write so many tokens; the limit it ran into."""
    state, random = guide.start(), np.random.default_rng(seed)
    for _ in range(tokens):
        rows = torch.zeros(1, 64, dtype=torch.int32)
        state.fill(rows)
        allowed = np.flatnonzero(np.unpackbits(rows.numpy().view(np.uint8), bitorder="little"))
        if state.error or state.finished or not len(allowed):
            break
        state.advance(int(random.choice(allowed)))
    return state.error


async def exhausted_by(compiler: GrammarCompiler, spec: GrammarSpec, salt: str) -> Guide:
    guide = await compiler.compile(spec, salt)
    for seed in range(50):
        if follow(guide, 400, seed) is not None:
            return guide
    raise AssertionError("the grammar never ran into a limit")


async def test_one_tenants_exhausted_grammar_is_nobody_elses(compiler: GrammarCompiler) -> None:
    spec = regex_spec(SLOW_BURNING, "regex", CONFIG)
    before = await compiler.compile(spec, "theirs")
    ours = await exhausted_by(compiler, spec, "ours")
    assert ours.exhausted
    assert not before.exhausted
    assert follow(before, 20, 1) is None
    assert await compiler.compile(spec, "theirs") is before


async def test_an_exhausted_grammar_is_compiled_anew(compiler: GrammarCompiler) -> None:
    spec = regex_spec(SLOW_BURNING, "regex", CONFIG)
    spent = await exhausted_by(compiler, spec, "once")
    again = await compiler.compile(spec, "once")
    assert again is not spent
    assert follow(again, 20, 1) is None
