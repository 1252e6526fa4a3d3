"""What a request was promised, by prompt length: the measure of goodput."""

from __future__ import annotations

import msgspec


class Stratum(msgspec.Struct, frozen=True):
    """Prompts up to this length have this long until their first token."""

    prompt_tokens: int
    ttft_s: float


class Promise(msgspec.Struct, frozen=True):
    """Strata by rising length; a prompt longer than all has the last one's time. Long prompts cannot be as quick as
    short ones, and one figure for all would let either ruin the other's statistics."""

    strata: tuple[Stratum, ...] = (
        Stratum(4_096, 0.7),
        Stratum(16_384, 2.0),
        Stratum(65_536, 5.0),
        Stratum(1 << 31, 15.0),
    )
    tpot_s: float = 0.040
    """Mean time per token after the first."""

    def stratum(self, prompt_tokens: int) -> Stratum:
        """That of a prompt."""
        for stratum in self.strata:
            if prompt_tokens <= stratum.prompt_tokens:
                return stratum
        return self.strata[-1]

    def ttft_s(self, prompt_tokens: int) -> float:
        """Until the first token, from the moment the router is asked."""
        return self.stratum(prompt_tokens).ttft_s
