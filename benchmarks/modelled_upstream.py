"""A model of an upstream on a simulated clock; callers cannot see its knee."""

from __future__ import annotations

import heapq
import math
import random
from collections import deque
from collections.abc import Callable

import msgspec

NOISE = 0.15
"""The standard deviation of the logarithm of a prompt's time."""


def usual_prompt(source: random.Random) -> int:
    """About 500 tokens."""
    return int(source.lognormvariate(6.2, 0.8))


def long_prompt(source: random.Random) -> int:
    """About 4,000 tokens."""
    return int(source.lognormvariate(8.3, 0.6))


def mixed_prompt(source: random.Random) -> int:
    """About 300 tokens, and one in ten about 27,000."""
    return int(source.lognormvariate(10.2, 0.3)) if source.random() < 0.1 else int(source.lognormvariate(5.7, 0.5))


def usual_answer(source: random.Random) -> int:
    """200 tokens on average."""
    return 2 + int(source.expovariate(1 / 200))


def short_answer(source: random.Random) -> int:
    """20 tokens on average."""
    return 2 + int(source.expovariate(1 / 20))


class Shape(msgspec.Struct, frozen=True):
    """The behaviour of an upstream, and its load.

    All its streams decode at one pace: a token takes `token_s` + `token_s_per_stream` · running, and beyond the knee
    that time grows in proportion to the number of streams.
    """

    name: str
    meaning: str
    knee: Callable[[float], int]
    """The knee in concurrent requests, by time in seconds."""
    clients: int = 0
    requests_per_s: float = 0.0
    queues: bool = True
    """Whether requests wait beyond the knee; if not, all run, and each is slower."""
    refuses: bool = False
    """Whether it answers 429 beyond the knee."""
    thrash: float = 0.0
    """The part of its work that is lost at twice the knee; at four times, the same part of the rest; and so on."""
    start_s: float = 0.15
    prompt_tokens_per_s: float = 40_000.0
    one_prompt_at_a_time: bool = False
    token_s: float = 0.02
    token_s_per_stream: float = 0.0
    judged: bool = True
    """Whether its ratios are in the last line."""
    prompt_tokens: Callable[[random.Random], int] = usual_prompt
    answer_tokens: Callable[[random.Random], int] = usual_answer


SHAPES = (
    Shape("queues", "96 run, the others wait there", lambda now: 96, clients=240),
    Shape("slows", "beyond 96 all are slower, and work is lost", lambda now: 96, clients=240, queues=False, thrash=0.1),
    Shape("batches", "slower with every stream, full at 160", lambda now: 160, clients=300, token_s_per_stream=0.0002),
    Shape("refuses", "429 beyond 80", lambda now: 80, clients=200, refuses=True),
    Shape("prompts", "one long prompt after the other", lambda now: 64, clients=100, one_prompt_at_a_time=True,
          prompt_tokens_per_s=20_000.0, prompt_tokens=long_prompt, answer_tokens=short_answer),
    Shape("moves", "as queues, but 96, after 240 s 32, after 400 s 160",
          lambda now: 96 if now < 240 else 32 if now < 400 else 160, clients=240),
    Shape("sinks", "as slows, but 96, after 240 s 64, after 400 s 96",
          lambda now: 64 if 240 <= now < 400 else 96, clients=240, queues=False, thrash=0.1),
    Shape("plunges", "as slows, but 96, after 240 s 32, after 400 s 160",
          lambda now: 96 if now < 240 else 32 if now < 400 else 160, clients=240, queues=False, thrash=0.1,
          judged=False),
    Shape("mixed", "as prompts, a tenth of them a hundred times as long", lambda now: 64, clients=150,
          one_prompt_at_a_time=True, prompt_tokens=mixed_prompt),
    Shape("open", "as queues, at nine tenths of what it can do", lambda now: 96, requests_per_s=20.0),
)  # fmt: skip


class Call(msgspec.Struct, eq=False):
    """One request. Times in seconds of the simulated clock."""

    client: int
    asked_at: float
    prompt_tokens: int
    answer_tokens: int
    sent_at: float = 0.0
    first_token_at: float = 0.0
    in_flight: int = 0
    """The number of calls in flight when it was sent, itself included."""


class ModelledUpstream:
    """later: schedules a call of a function at a time. began, ended: called at a call's first and last token."""

    def __init__(
        self,
        shape: Shape,
        source: random.Random,
        later: Callable[[float, Callable[[], None]], None],
        began: Callable[[Call], None],
        ended: Callable[[Call], None],
    ) -> None:
        self._shape, self._source = shape, source
        self._later, self._began, self._ended = later, began, ended
        self._now = 0.0
        self._running = 0
        self._queue: deque[Call] = deque()
        self._prompts: deque[Call] = deque()
        self._decoding: list[tuple[float, int, Call]] = []
        """Heap by the value of `_decoded` at which a call ends."""
        self._decoded = 0.0
        """Tokens that a stream which always ran would have got so far."""
        self._number = 0
        self._alarm = 0

    def advance(self, now: float) -> None:
        """Advance its clock to `now`."""
        self._decoded += (now - self._now) * self._pace()
        self._now = now

    def submit(self, call: Call) -> bool:
        """Take a request; returns False if it is refused."""
        full = self._running >= self._shape.knee(self._now)
        if full and self._shape.refuses:
            return False
        if full and self._shape.queues:
            self._queue.append(call)
        else:
            self._run(call)
        return True

    def _run(self, call: Call) -> None:
        self._running += 1
        if self._shape.one_prompt_at_a_time:
            self._prompts.append(call)
        if len(self._prompts) <= 1:
            self._compute(call)
        self._plan()

    def _compute(self, call: Call) -> None:
        own_s = call.prompt_tokens / self._shape.prompt_tokens_per_s
        if not self._shape.one_prompt_at_a_time:
            own_s += self._shape.start_s
        self._later(self._now + own_s * self._source.lognormvariate(0.0, NOISE), lambda: self._computed(call))

    def _computed(self, call: Call) -> None:
        if self._prompts:
            self._prompts.popleft()
            if self._prompts:
                self._compute(self._prompts[0])
        call.first_token_at = self._now
        self._number += 1
        heapq.heappush(self._decoding, (self._decoded + call.answer_tokens - 1, self._number, call))
        self._began(call)
        self._plan()

    def _pace(self) -> float:
        """Tokens a second of each stream."""
        shape, running = self._shape, max(self._running, 1)
        token_s, over = shape.token_s + shape.token_s_per_stream * running, running / shape.knee(self._now)
        if over > 1:
            token_s *= over * (1 - shape.thrash) ** -math.log2(over)
        return 1 / token_s

    def _plan(self) -> None:
        """Schedule a check for when the next stream ends at the current pace; a change of pace schedules another."""
        if self._decoding:
            self._alarm += 1
            number, left = self._alarm, max(self._decoding[0][0] - self._decoded, 0.0)
            self._later(self._now + left / self._pace(), lambda: self._end_streams(number))

    def _end_streams(self, number: int) -> None:
        if number != self._alarm:
            return
        while self._decoding and self._decoding[0][0] <= self._decoded + 1e-6:
            call = heapq.heappop(self._decoding)[2]
            self._running -= 1
            self._ended(call)
        while self._queue and self._running < self._shape.knee(self._now):
            self._run(self._queue.popleft())
        self._plan()
