"""Measures the cost of a step's tokens, and decides how many a step may compute.

A step delays every running stream, so its prompt tokens must fit into the time that streams may pause. The cost of a
token differs by a factor of a thousand between models and machines, so it is measured, by kind. Generation costs little
and is deducted first; the rest of a step's time is the cost of its prompt tokens.
"""

from __future__ import annotations

LEARNT = 0.2
"""Weight of the newest measurement in an average."""
FIRST_TOKENS = 64
"""Prompt tokens of a step before any cost is known."""
MIN_TOKENS = 16
"""Prompt tokens of a step in which generation alone takes as long as streams may pause."""
MIN_RUNNING = 8
"""Sequences that may run even if a step is slow."""
MEANINGFUL = 8
"""Minimum prompt tokens of a step from which their cost is learnt."""


def prompt_budget(pause_s: float, generation_s: float, token_s: float | None, most: int) -> int:
    """Maximum prompt tokens that fit into a step of `pause_s` seconds in addition to generation that takes
    `generation_s`. token_s: cost of a prompt token, None if unknown; most: the largest step."""
    if token_s is None:
        return min(FIRST_TOKENS, most)
    # bounded before it is converted: `pause_ms` may be infinite
    fitting = int(min(max(pause_s - generation_s, 0.0) / token_s, most)) if token_s > 0 else most
    return min(max(fitting, MIN_TOKENS), most)


def running_limit(pause_s: float, generation_s: float, running: int, most: int) -> int:
    """Number of sequences that may run: `most`, or no more than now and `MIN_RUNNING` if generation for them takes
    `pause_s` or longer."""
    return min(max(running, MIN_RUNNING), most) if generation_s >= pause_s else most


class StepCosts:
    """Averages of measured steps."""

    def __init__(self) -> None:
        self._generation_s: dict[int, float] = {}
        """Seconds of a step that only generates, by the bit length of the number of sequences."""
        self.token_s: float | None = None
        """Seconds per prompt token; None until measured."""

    def generation_s(self, sequences: int) -> float:
        """Expected seconds of a step that generates for `sequences`. A number without measurements takes the time of
        the nearest smaller number, or else of the nearest larger one."""
        if not sequences or not self._generation_s:
            return 0.0
        size = sequences.bit_length()
        known = max((one for one in self._generation_s if one <= size), default=min(self._generation_s))
        return self._generation_s[known]

    def observe(self, generating: int, prompt_tokens: int, seconds: float) -> None:
        """Record a computed step. generating: sequences that got one token, without drafts and prompts."""
        if not prompt_tokens:
            self._generation_s[generating.bit_length()] = _learnt(
                self._generation_s.get(generating.bit_length()), seconds
            )
        elif prompt_tokens >= MEANINGFUL:
            cost = max(seconds - self.generation_s(generating), 0.0) / prompt_tokens
            self.token_s = _learnt(self.token_s, cost)


def _learnt(average: float | None, newest: float) -> float:
    return newest if average is None else average + LEARNT * (newest - average)
