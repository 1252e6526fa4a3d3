"""What it saves to compute a file's next line ahead: the shipped weights, laid out prefix, suffix, half-typed line."""

from __future__ import annotations

from pathlib import Path

import pytest

from contracts.generation import TextPrompt
from engines.embedded.engine import Engine
from engines.tokenizer.tokenizer import Tokenizer
from gateway.wire.fill.next_line import next_line
from gateway.wire.fill.prepare import prepare_fill
from gateway.wire.fill.request import FillRequest
from gateway.wire.prepared import Prepared
from tests.engines.embedded.tiny import finish, make_engine, request, text
from tests.gateway.wire.openai.preparing import CALLER, target
from tests.psm_model import SHIPPED, write_psm_model

PAGE_TOKENS = 16
PREFIX = "".join(f"import module_{number}\n" for number in range(60)) + "\n\ndef first(value):\n    total ="
SUFFIX = "\n\n\n" + "".join(f"def later_{number}(value):\n    return value - {number}\n\n\n" for number in range(60))


def compute(engine: Engine, name: str, prepared: Prepared) -> tuple[str, int]:
    """The answer, and how many tokens of the prompt were computed for it."""
    assert isinstance(prepared.generation.prompt, TextPrompt)
    [prompt] = prepared.generation.prompt.prompts
    assert not isinstance(prompt, str)
    limit = prepared.generation.sampling.max_tokens
    [deltas] = finish(engine, request(name, prompt, max_tokens=limit)).values()
    return text(deltas), len(prompt) - deltas[-1].cached_tokens


@pytest.mark.parametrize("ahead", [False, True])
async def test_a_new_line_costs_the_suffix_or_what_was_typed(tmp_path: Path, ahead: bool) -> None:
    tokenizer = Tokenizer.load(write_psm_model(tmp_path / "psm"))
    where = target(tokenizer, context_tokens=4_000)
    engine = make_engine(SHIPPED, page_tokens=PAGE_TOKENS)

    async def asked(prefix: str) -> Prepared:
        gap = FillRequest(model="m", prefix=prefix, suffix=SUFFIX, max_tokens=8)
        return await prepare_fill(gap, "r", CALLER, "salt", where)

    compute(engine, "first", await asked(PREFIX))
    served = await asked(PREFIX + " va")
    completion, computed = compute(engine, "typed", served)
    assert computed <= PAGE_TOKENS + 4, "a keystroke costs what was typed, with or without"
    if ahead:
        _, computed = compute(engine, "ahead", await next_line(served, completion, "r2", where))
        assert computed > 500, "the suffix, while nobody waits"
    accepted = await asked(PREFIX + " va" + completion.rstrip("\n") + "\n    ")
    answer, computed = compute(engine, "next", accepted)
    assert (computed <= PAGE_TOKENS + 4) if ahead else (computed > 500)
    assert answer == compute(make_engine(SHIPPED, page_tokens=PAGE_TOKENS), "cold", accepted)[0]
