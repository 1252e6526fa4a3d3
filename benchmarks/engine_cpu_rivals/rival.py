"""What every rival is to the benchmark: something that starts, takes bursts of prompts, and stops."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol


class Missing(Exception):
    """The rival is not installed here; the message says what it wants."""


@dataclass(frozen=True, slots=True)
class Setup:
    """The same for all."""

    model: Path
    threads: int
    most_concurrent: int
    context_tokens: int
    """Longest prompt and output together."""
    scratch: Path
    """An empty folder for logs and converted weights."""


@dataclass(slots=True)
class Sample:
    """What one burst gave."""

    tokens: int = 0
    elapsed_s: float = 0.0
    cpu_s: float = 0.0
    """User and kernel time of all the rival's processes."""
    first_s: list[float] = field(default_factory=list)
    """Request sent to first token, per request."""
    gaps_s: list[float] = field(default_factory=list)
    """Between neighbouring tokens of a stream."""


class Rival(Protocol):
    """One engine. Paused whenever another is measured: some spin while they wait."""

    build: str
    """Versions and what else decides how fast it can be: instruction sets, flags."""

    async def ready(self) -> None:
        """Return when it would answer. Raises RuntimeError with the end of its log when it ended instead."""
        ...

    async def burst(self, prompts: Iterator[list[int]], concurrent: int, tokens: int, seconds: float) -> Sample:
        """Keep `concurrent` requests of `tokens` greedy tokens running; none begins after `seconds`, all finish."""
        ...

    async def text(self, prompt: list[int], tokens: int) -> str:
        """What it answers, to see that it has the weights right."""
        ...

    def pause(self) -> None:
        """Stop its processes where they are."""
        ...

    def resume(self) -> None:
        """Let them go on."""
        ...

    def stop(self) -> None:
        """End it. Idempotent."""
        ...
