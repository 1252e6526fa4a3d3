"""The embedded engine, stepped by hand. Its clock is its thread's CPU time, which other work does not advance."""

from __future__ import annotations

import time

import msgspec

from engines.embedded.build import build_engine
from engines.embedded.config import EngineConfig
from engines.embedded.request import Request, Sampling
from engines.embedded.sequence import Sequence
from engines.performance.roofline import pairs
from engines.tokenizer.tokenizer import Tokenizer


class Arrival(msgspec.Struct, frozen=True):
    """One request."""

    at_s: float
    prompt: tuple[int, ...]
    output_tokens: int


class Step(msgspec.Struct, frozen=True):
    """The work of one step, and its duration."""

    prompt_tokens: int
    prompt_pairs: float
    streams: int
    context_tokens: int
    """The context of all streams together, before the step."""
    taken_s: float


class Run(msgspec.Struct):
    """The engine's steps and times for some arrivals. Times are by the arrival's index in the list."""

    steps: list[Step]
    first_s: dict[int, float]
    ended_s: dict[int, float]


class _Letters:
    """A text stream in which every token is one letter, so that each token makes a delta at once."""

    def follow(self, ids: object) -> None:
        pass

    def step(self, id_: int) -> str:
        return "x"

    def flush(self) -> str:
        return ""


class SteppedEngine:
    """One engine on one thread. Prompts must not repeat, since its prefix cache is on."""

    def __init__(self, model: str, context_tokens: int) -> None:
        self.config = EngineConfig(model=model, threads=1)
        self._engine = build_engine(self.config, context_tokens, Tokenizer.load(model))
        self._engine._text_stream = _Letters
        self.vocabulary = self._engine._vocabulary
        self._numbered = 0

    def run(self, arrivals: list[Arrival]) -> Run:
        """Run the arrivals until all are answered."""
        run = Run([], {}, {})
        known: dict[str, int] = {}
        now, left = 0.0, list(enumerate(arrivals))
        while left or self._engine.busy:
            if not self._engine.busy:
                now = max(now, left[0][1].at_s)
            while left and left[0][1].at_s <= now:
                number, arrival = left.pop(0)
                known[self._submit(arrival)] = number
            before = {one: (one.computed, one.is_new) for one in self._engine.scheduler.running}
            begun = time.thread_time()
            deltas = self._engine.step()
            taken = time.thread_time() - begun
            now += taken
            run.steps.append(self._step(before, taken))
            for delta in deltas:
                if delta.completion_tokens:
                    run.first_s.setdefault(known[delta.rid], now)
                if delta.finish is not None:
                    run.ended_s[known[delta.rid]] = now
        return run

    def _submit(self, arrival: Arrival) -> str:
        self._numbered += 1
        rid = str(self._numbered)
        self._engine.submit(Request(rid, (arrival.prompt,), Sampling(arrival.output_tokens, 0.0)))
        return rid

    def _step(self, before: dict[Sequence, tuple[int, bool]], taken_s: float) -> Step:
        tokens, looked, streams, context = 0, 0.0, 0, 0
        for sequence in dict.fromkeys([*before, *self._engine.scheduler.running]):
            done, prompt = before.get(sequence, (0, True))
            fresh = sequence.computed - done
            if prompt:
                tokens += fresh
                looked += pairs(fresh, done)
            else:
                streams += 1
                context += done
        return Step(tokens, looked, streams, context, taken_s)
