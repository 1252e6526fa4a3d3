"""A load tool as a client: the rows of the four tools run the commands of their guide, docs/guides/load-tools.md."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).parents[2]))  # a row runs in the tools' environment, without the project

from benchmarks.client_tool_runs.tool import REQUESTS, Endpoint, Figures, Target
from benchmarks.client_tool_runs.tools import TOOLS

TEXT_TOKENS = 6
"""Tokens of the scripted engine's text, which ends by itself."""
QUIET = {"DO_NOT_TRACK": "1", "TOKENIZERS_PARALLELISM": "false"}


def measured(at: Any, name: str, key: str | None = None, model: str | None = None) -> Figures:
    """The figures of a run; raises if the tool leaves none."""
    target = Target(at.url, key or at.key, Endpoint.CHAT, model or at.model, Path(at.tokenizer))
    tool = TOOLS[name]
    given = {name: value for name, value in tool.environment(target).items() if value is not None}
    at.program(*tool.arguments(target), env={**QUIET, **given})
    return tool.read(at.folder)


def completes(at: Any, name: str) -> None:
    """All requests of a run are answered."""
    figures = measured(at, name)
    assert (figures.completed, figures.failed) == (REQUESTS, 0), figures


def counts(at: Any, name: str) -> None:
    """Without usage a tool counts the tokens that it requested, or those of another tokenizer."""
    figures = measured(at, name)
    assert 0 < figures.output_tokens <= TEXT_TOKENS * REQUESTS, figures
