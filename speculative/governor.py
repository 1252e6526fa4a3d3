"""Decides whether drafting pays at a batch size, from the measured cost and yield of steps with and without drafts."""

from __future__ import annotations

from speculative.config import SpeculationConfig

TRIAL_STEPS = 6
"""Consecutive steps of a mode before it is judged."""
TRIAL_SHARE = 0.05
"""Share of the time that trials may waste while drafting is off. Expensive drafts are therefore tried rarely."""
WEIGHT = 0.15
"""Weight of a new observation in the running means."""
ON_ABOVE, OFF_BELOW = 1.1, 1.0
"""Gain at which drafting begins, and below which it ends; the gap prevents flapping."""


class _Mode:
    """Running means of one mode at one batch size."""

    def __init__(self) -> None:
        self.step_s = 0.0
        self.tokens = 0.0
        """Tokens per sequence and step."""
        self.steps = 0

    def observe(self, step_s: float, tokens: float) -> None:
        self.steps += 1
        # a plain mean of the first few steps, so that a slow first step does not count for long
        weight = max(WEIGHT, 1 / self.steps)
        self.step_s += weight * (step_s - self.step_s)
        self.tokens += weight * (tokens - self.tokens)


class _Size:
    """Both modes' means at one batch size, and the mode that they favor."""

    def __init__(self) -> None:
        self.plain, self.drafted = _Mode(), _Mode()
        self.on = True
        self.trial_left = 0
        """Remaining steps of a trial of the mode that is not chosen."""
        self.since_trial = 0

    @property
    def drafting(self) -> bool:
        """Whether the next step may have drafts."""
        return self.on != (self.trial_left > 0)

    def gain(self) -> float | None:
        """Ratio of tokens per second with drafts to those without; None until both modes have been tried."""
        if min(self.plain.steps, self.drafted.steps) < TRIAL_STEPS:
            return None
        return (self.drafted.tokens / self.drafted.step_s) / (self.plain.tokens / self.plain.step_s)

    def pause(self, probe_steps: int) -> float:
        """Steps until the next trial."""
        if self.gain() is None:
            return TRIAL_STEPS
        if self.on:
            return probe_steps
        wasted_s = TRIAL_STEPS * (self.drafted.step_s - self.drafted.tokens / self.plain.tokens * self.plain.step_s)
        return max(probe_steps, wasted_s / self.plain.step_s / TRIAL_SHARE)

    def judge(self) -> None:
        """Choose a mode by the current means."""
        gain = self.gain()
        if gain is not None and gain < OFF_BELOW:
            self.on = False
        elif gain is not None and gain > ON_ABOVE:
            self.on = True


class Governor:
    """One engine's verdicts, kept by batch size in powers of two. The class is pure: times are arguments."""

    def __init__(self, config: SpeculationConfig) -> None:
        self._config = config
        self._sizes: dict[int, _Size] = {}

    def drafts(self, sequences: int) -> int:
        """Maximum drafts for each of `sequences` generating sequences in the next step; 0 while drafting is off."""
        drafting = not self._config.governed or self._size(sequences).drafting
        return self._config.max_drafts if drafting else 0

    def observe(self, sequences: int, drafted: int, emitted: int, step_s: float) -> None:
        """Record a step of `sequences` generating sequences and nothing else, which checked `drafted` drafts, emitted
        `emitted` tokens and took `step_s` seconds, drafting included."""
        size = self._size(sequences)
        (size.drafted if drafted else size.plain).observe(max(step_s, 1e-9), emitted / sequences)
        if size.trial_left:
            size.trial_left -= 1
            size.since_trial = 0
        else:
            size.since_trial += 1
            if size.since_trial >= size.pause(self._config.probe_steps):
                size.trial_left = TRIAL_STEPS
        if not size.trial_left:
            size.judge()

    def _size(self, sequences: int) -> _Size:
        return self._sizes.setdefault(max(sequences - 1, 0).bit_length(), _Size())
