"""What an engine was asked for a client's request, read back out of the token ids."""

from __future__ import annotations

import functools
from typing import Any

from engines.tokenizer.tokenizer import Tokenizer
from tests.deployment import ROOT
from tests.gateway.slow_platform import SlowPlatform

FOLDER = ROOT / "models" / "slipstream-code"
MARKS = {"<|fim_prefix|>": "prefix", "<|fim_suffix|>": "suffix", "<|fim_middle|>": "middle"}


@functools.cache
def tokenizer() -> Tokenizer:
    """The code model's."""
    return Tokenizer.load(FOLDER)


async def engine_record(platform: SlowPlatform, request_id: str) -> dict[str, Any]:
    """What happened to the request at the engine: `tests.fakes.engine_state.Record`."""
    (record,) = [record for record in await platform.engine.recorded() if request_id in record["rid"]]
    return dict(record)


def sides(ids: list[int]) -> tuple[str, str]:
    """A laid-out gap's prefix and suffix: what stands behind the middle token is the end of the prefix."""
    texts = _texts(ids)
    return texts["prefix"] + texts["middle"], texts["suffix"]


def other_files(ids: list[int]) -> str:
    """What stands before a laid-out gap's marks."""
    return _texts(ids)[""]


def _texts(ids: list[int]) -> dict[str, str]:
    """By the mark that they stand behind."""
    current: list[int] = []
    by_mark = {"": current}
    for id_ in ids:
        mark = MARKS.get(tokenizer().token_text(id_))
        if mark is None:
            current.append(id_)
        else:
            current = by_mark.setdefault(mark, [])
    return {mark: tokenizer().decode(held) for mark, held in by_mark.items()}
