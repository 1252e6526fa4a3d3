"""What is computed ahead is the very prompt that comes when a completion was accepted and Enter pressed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from contracts.errors import ContextTooLong
from contracts.generation import BACKGROUND_PRIORITY, TextPrompt
from engines.tokenizer.tokenizer import Tokenizer
from gateway.wire.fill.next_line import next_line, worth_computing
from gateway.wire.fill.prepare import prepare_fill
from gateway.wire.fill.request import FillRequest
from gateway.wire.gap import Snippet
from gateway.wire.prepared import Prepared, Target
from tests.gateway.wire.openai.preparing import CALLER, MODELS, complete, target
from tests.psm_model import write_psm_model

AFTER = "\n\n\ndef other():\n    return 2\n"
FILE = "".join(f"def function_{number}(value):\n    return value + {number}\n\n\n" for number in range(100))


@pytest.fixture(scope="module")
def psm(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    return Tokenizer.load(write_psm_model(tmp_path_factory.mktemp("models") / "psm"))


async def fill(where: Target, prefix: str, suffix: str = AFTER, **fields: Any) -> Prepared:
    return await prepare_fill(
        FillRequest(model="m", prefix=prefix, suffix=suffix, **fields), "r", CALLER, "salt", where
    )


def ids_of(prepared: Prepared) -> tuple[int, ...]:
    assert isinstance(prepared.generation.prompt, TextPrompt)
    [ids] = prepared.generation.prompt.prompts
    assert not isinstance(ids, str)
    return ids


@pytest.mark.parametrize(
    ("prefix", "completion", "typed"),
    [
        ("import os\nx = os.ge", "tcwd()", "import os\nx = os.getcwd()\n    "),
        ("import os\nx = 1", "", "import os\nx = 1\n"),
        ("def f():\n    ", "x = 1\n    return x", "def f():\n    x = 1\n    return x\n    y"),
        ("def f():\n", "    pass\n", "def f():\n    pass\nx"),
        ("a = 1\r\nb", " = 2\r\nc = 3", "a = 1\r\nb = 2\r\nc = 3\r\nd"),
        (FILE + "x =", " 1", FILE + "x = 1\ny"),
    ],
)
async def test_all_but_the_new_line_is_what_the_next_request_asks(
    psm: Tokenizer, prefix: str, completion: str, typed: str
) -> None:
    where, snippets = target(psm, context_tokens=1_024), (Snippet("b.py", "b = 1\n"),)
    served = await fill(where, prefix, path="a.py", snippets=snippets, max_tokens=30)
    ahead = await next_line(served, completion, "r2", where)
    asked = await fill(where, typed, path="a.py", snippets=snippets, max_tokens=30)

    assert ids_of(asked)[: len(ids_of(ahead))] == ids_of(ahead)
    assert len(ids_of(asked)) - len(ids_of(ahead)) <= 3
    assert ahead.file == asked.file
    assert ahead.warm_up
    assert (ahead.generation.request_id, ahead.generation.cache_salt) == ("r2", "salt")
    assert (ahead.generation.sampling.max_tokens, ahead.generation.priority) == (1, BACKGROUND_PRIORITY)
    assert not worth_computing(ahead, where), "one behind the other for ever"


async def test_it_is_worth_it_where_a_new_line_costs_the_suffix(psm: Tokenizer) -> None:
    where = target(psm, context_tokens=1_024)
    assert worth_computing(await fill(where, "x = "), where)
    assert worth_computing(await complete(where, "x = ", suffix=AFTER), where)
    for prepared in (
        await fill(where, "x = ", ")\n\ny = 2\n"),  # the cursor is inside a line
        await fill(where, "x = ", "\n"),  # nothing stands behind it
        await fill(where, "x = ", warm_up=True),
        await complete(where, "x = "),  # no gap
        await complete(where, "x = ", suffix=AFTER, n=2),
    ):
        assert not worth_computing(prepared, where)


async def test_it_is_not_where_the_layout_or_the_engine_gains_nothing(psm: Tokenizer, tmp_path: Path) -> None:
    spm = Tokenizer.load(MODELS / "slipstream-code")
    for where in (
        target(spm, context_tokens=1_024),
        target(psm, "openai", context_tokens=1_024),
        target(psm, context_tokens=1_024, fim={"warm_up": False}),
        target(None, context_tokens=1_024),
    ):
        assert not worth_computing(await fill(where, "x = "), where)


async def test_a_completion_that_leaves_no_room_is_refused_by_name(psm: Tokenizer) -> None:
    where = target(psm, context_tokens=100, fim={"window": False})
    served = await fill(where, "x = ", max_tokens=30)
    with pytest.raises(ContextTooLong):
        await next_line(served, "y " * 90, "r2", where)
