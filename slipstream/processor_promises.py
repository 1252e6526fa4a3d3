"""Sets promises that a CPU can keep, for tiers that `up` serves with its own engines on CPUs.

The defaults are promises for GPUs. With them, a laptop misses every objective, and its router refuses the second of two
files that arrive together.
"""

from __future__ import annotations

from typing import Protocol, TypeVar

import msgspec

from contracts.generation import Tier
from contracts.length_class import MEDIUM_TOKENS, LengthClass
from contracts.objectives import OBJECTIVES, Objective
from router.config import SLOS, SloClass
from slipstream.settings import Settings

SHORT_S, LONGER_S, TOKEN_S, TARGET = 5.0, 30.0, 0.25, 0.95
"""Time to the first token of a short and of a longer prompt, time per token, and the share of requests that keep them.
They leave room: a CPU takes seconds for a file of some thousand tokens."""
PROCESSOR_OBJECTIVES = tuple(
    Objective(tier, length, ttft_s * 1e3, TOKEN_S * 1e3, target=TARGET)
    for tier in (Tier.CHAT, Tier.AUTOCOMPLETE)
    for length, ttft_s in ((LengthClass.SHORT, SHORT_S), (LengthClass.MEDIUM, LONGER_S), (LengthClass.LONG, LONGER_S))
)
PROCESSOR_SLOS = (
    SloClass(Tier.AUTOCOMPLETE, 1 << 31, LONGER_S, TOKEN_S),
    SloClass(Tier.CHAT, MEDIUM_TOKENS - 1, SHORT_S, TOKEN_S),
    SloClass(Tier.CHAT, 1 << 31, LONGER_S, TOKEN_S),
)


class _OfTier(Protocol):
    @property
    def tier(self) -> Tier: ...


PromiseT = TypeVar("PromiseT", bound=_OfTier)


def with_promises_of_this_machine(settings: Settings) -> Settings:
    """The settings with new promises for each tier on CPUs that has the defaults; an operator's promises stay.

    settings: with models, and with the engines that their pools will start.
    """
    on_processors = {pool.name for pool in settings.pools if pool.engine is not None and pool.engine.device == "cpu"}
    tiers = {model.tier for model in settings.models if model.pool in on_processors}
    router, slo = settings.router, settings.slo
    if router.slos == SLOS:
        router = msgspec.structs.replace(router, slos=_of(tiers, PROCESSOR_SLOS, SLOS))
    if slo.objectives == OBJECTIVES:
        slo = msgspec.structs.replace(slo, objectives=_of(tiers, PROCESSOR_OBJECTIVES, OBJECTIVES))
    return msgspec.structs.replace(settings, router=router, slo=slo)


def _of(tiers: set[Tier], on_processors: tuple[PromiseT, ...], else_: tuple[PromiseT, ...]) -> tuple[PromiseT, ...]:
    """The promises for CPUs of these tiers, and the default ones of all other tiers."""
    return (
        *(each for each in on_processors if each.tier in tiers),
        *(each for each in else_ if each.tier not in tiers),
    )
