"""The interface of a rival: it starts, serves bursts of prompts, and stops."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol


class Missing(Exception):
    """The rival is not installed here; the message says what it needs."""


@dataclass(frozen=True, slots=True)
class Setup:
    """What every rival is started with."""

    model: Path
    threads: int
    most_concurrent: int
    context_tokens: int
    """The longest prompt and its output together."""
    scratch: Path
    """An empty folder for logs and converted weights."""


@dataclass(slots=True)
class Sample:
    """The measurements of one or more bursts."""

    tokens: int = 0
    elapsed_s: float = 0.0
    cpu_s: float = 0.0
    """User and kernel time of all the rival's processes."""
    first_s: list[float] = field(default_factory=list)
    """From sending the request to its first token, per request."""
    gaps_s: list[float] = field(default_factory=list)
    """Between successive tokens of a stream."""


class Rival(Protocol):
    """One engine. It is paused while another is measured, since some engines spin while they wait."""

    build: str
    """Versions, instruction sets and flags: everything that decides its speed."""

    async def ready(self) -> None:
        """Return once it can serve. Raises RuntimeError with the end of its log if it ended instead."""
        ...

    async def burst(self, prompts: Iterator[list[int]], concurrent: int, tokens: int, seconds: float) -> Sample:
        """Keep `concurrent` requests of `tokens` greedy tokens running; none starts after `seconds`, all finish."""
        ...

    async def text(self, prompt: list[int], tokens: int) -> str:
        """The text that it generates, to check that it has loaded the weights correctly."""
        ...

    def pause(self) -> None:
        """Suspend its processes."""
        ...

    def resume(self) -> None:
        """Resume its processes."""
        ...

    def stop(self) -> None:
        """End its processes. Idempotent."""
        ...
