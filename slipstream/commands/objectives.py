"""`--objective` of the commands that count goodput."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from contracts.errors import ConfigError

if TYPE_CHECKING:
    from router.config import SloClass

objective_option = click.option(
    "--objective",
    "objectives",
    multiple=True,
    metavar="TOKENS:TTFT:TPOT",
    help="Objective in ms by which goodput is measured, for prompts of up to TOKENS. Repeat it for several lengths, "
    "shortest first; leave out TOKENS for all longer prompts. A TPOT of 0 means none.  [default: in `tools "
    "bench` the deployment's objectives, otherwise Slipstream's own]",
)


def promises_of(objectives: Sequence[str]) -> tuple[SloClass, ...]:
    """Objectives from texts such as LONGEST_PROMPT:TTFT_MS:TPOT_MS. Raises ConfigError."""
    from contracts.generation import Tier
    from router.config import SloClass

    promises: list[SloClass] = []
    for text in objectives:
        try:
            tokens, ttft_ms, tpot_ms = text.split(":")
            longest = int(tokens) if tokens else 1 << 31
            promise: SloClass | None = SloClass(Tier.CHAT, longest, float(ttft_ms) / 1e3, float(tpot_ms) / 1e3)
        except ValueError:
            promise = None
        if promise is None or promise.prompt_tokens < 1 or promise.ttft_s <= 0 or promise.tpot_s < 0:
            raise ConfigError(f"--objective {text!r}: write it like 4096:700:40, or :2000:40 for all longer prompts")
        if promises and promise.prompt_tokens <= promises[-1].prompt_tokens:
            raise ConfigError(f"--objective {text!r}: it must be for longer prompts than the one before")
        promises.append(promise)
    return tuple(promises)
