"""A learnt concurrency limit beside the best fixed one, in front of upstreams that say nothing of themselves.

    python -m benchmarks.concurrency [--seeds 3] [--first-seed 1000] [--only SHAPE] [--jobs 1]

The upstreams are modelled on a simulated clock (`modelled_upstream.py`): some let requests wait beyond their knee,
some slow down, some refuse, some are bound by prompts, and some knees move twice. Clients ask again about half a
second after each answer, or arrive by a rate; whoever finds no place waits in line, first come, first served; who is
refused comes back after a second. Ten simulated minutes, the first two not counted.

The best fixed limit is found in the same run among 2, 2.2, 2.4 and so on: of those with 99 % of the most
tokens a second, the one with the lowest TTFT p99. Time to first token is the client's: waiting in line included. The
time per token is shown beside, for a fixed limit chosen by the other two says nothing of it.

`knee` is a limit that is the knee at every moment: what a rule could learn at most. With the shape `plunges` it misses
the goal too, by more than what is learnt, so that this shape is shown and is not in the last line: while the knee is at
32 of 240 clients, whoever is not given to the upstream waits in line, and the TTFT counts that; a fixed limit of 172
has them wait inside instead, in tokens that each take seven times as long, which the TTFT does not count.

Last line: JSON {throughput_ratio, ttft_p99_ratio}: means over the seeds, of the worst shape each that is judged.
"""

from __future__ import annotations

import argparse
import heapq
import json
import multiprocessing
import random
from collections import deque
from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

import msgspec

from benchmarks.modelled_upstream import SHAPES, Call, ModelledUpstream, Shape
from router.config import ConcurrencyConfig
from router.core.concurrency_limit import ConcurrencyLimit
from tools.simulator.course import percentile

SECONDS = 600.0
WARM_UP_S = 120.0
RETRY_S = 1.0
NOT_LOST = 0.99
GRID_STEP = 1.1
FIXED, UNLIMITED, KNEE = 64, 1 << 20, -1


class Limit(Protocol):
    """A concurrency limit, as a trial uses it."""

    @property
    def places(self) -> int: ...

    def first_token(self, ttft_s: float, prompt_tokens: int, in_flight: int) -> None: ...

    def answered(self, ttft_s: float, decode_s: float, prompt_tokens: int, tokens: int, in_flight: float) -> None: ...

    def refused(self, in_flight: int) -> None: ...


class FixedLimit(msgspec.Struct):
    """A constant limit."""

    places: int

    def first_token(self, ttft_s: float, prompt_tokens: int, in_flight: int) -> None: ...

    def answered(self, ttft_s: float, decode_s: float, prompt_tokens: int, tokens: int, in_flight: float) -> None: ...

    def refused(self, in_flight: int) -> None: ...


class KnownKnee:
    """The knee at every moment, which no rule knows."""

    def __init__(self, shape: Shape) -> None:
        self._shape = shape
        self.now_s = 0.0

    @property
    def places(self) -> int:
        return self._shape.knee(self.now_s)

    def first_token(self, ttft_s: float, prompt_tokens: int, in_flight: int) -> None: ...

    def answered(self, ttft_s: float, decode_s: float, prompt_tokens: int, tokens: int, in_flight: float) -> None: ...

    def refused(self, in_flight: int) -> None: ...


class Measured(NamedTuple):
    """Figures of one trial after its warm-up, or the mean of several."""

    tokens_per_s: float
    ttft_p99_s: float
    tpot_p99_s: float
    refused: float
    """Part of the requests sent to the upstream."""


class Trial:
    """One upstream, its clients, and a limit in between."""

    def __init__(self, shape: Shape, limit: Limit, seed: int) -> None:
        self._shape, self._limit = shape, limit
        self._source = random.Random(f"{seed} {shape.name}")
        self._upstream = ModelledUpstream(shape, self._source, self._later, self._began, self._ended)
        self._heap: list[tuple[float, int, Callable[[], None]]] = []
        self._pushed = 0
        self._now = 0.0
        self._in_flight = 0
        self._line: deque[Call] = deque()
        self._tokens = self._sent = self._refused = 0
        self._ttft_s: list[float] = []
        self._tpot_s: list[float] = []

    def run(self) -> Measured:
        """Run the whole trial."""
        for client in range(self._shape.clients):
            self._later(self._source.uniform(0, 2.0), lambda client=client: self._ask(client))  # type: ignore[misc]
        if self._shape.requests_per_s:
            self._arrive()
        while self._heap[0][0] <= SECONDS:
            self._now, _, event = heapq.heappop(self._heap)
            self._upstream.advance(self._now)
            if isinstance(self._limit, KnownKnee):
                self._limit.now_s = self._now
            event()
            self._serve()
        return Measured(
            self._tokens / (SECONDS - WARM_UP_S),
            percentile(sorted(self._ttft_s), 99),
            percentile(sorted(self._tpot_s), 99),
            self._refused / max(self._sent, 1),
        )

    def _later(self, at_s: float, event: Callable[[], None]) -> None:
        self._pushed += 1
        heapq.heappush(self._heap, (at_s, self._pushed, event))

    def _arrive(self) -> None:
        self._ask(0)
        self._later(self._now + self._source.expovariate(self._shape.requests_per_s), self._arrive)

    def _ask(self, client: int) -> None:
        prompt_tokens, answer_tokens = self._shape.prompt_tokens(self._source), self._shape.answer_tokens(self._source)
        self._line.append(Call(client, self._now, prompt_tokens, answer_tokens))

    def _serve(self) -> None:
        while self._line and self._in_flight < self._limit.places:
            call = self._line.popleft()
            self._in_flight += 1
            call.sent_at, call.in_flight = self._now, self._in_flight
            self._sent += self._now >= WARM_UP_S
            if not self._upstream.submit(call):
                self._refused += self._now >= WARM_UP_S
                self._limit.refused(self._in_flight)
                self._in_flight -= 1
                back_at = self._now + RETRY_S * self._source.uniform(1, 1.2)
                self._later(back_at, lambda call=call: self._line.append(call))  # type: ignore[misc]

    def _began(self, call: Call) -> None:
        if call.asked_at >= WARM_UP_S:
            self._ttft_s.append(self._now - call.asked_at)
        self._limit.first_token(self._now - call.sent_at, call.prompt_tokens, self._in_flight)

    def _ended(self, call: Call) -> None:
        decode_s = self._now - call.first_token_at
        if self._now >= WARM_UP_S:
            self._tokens += call.answer_tokens
            self._tpot_s.append(decode_s / (call.answer_tokens - 1))
        mean = (call.in_flight + self._in_flight) / 2
        ttft_s = call.first_token_at - call.sent_at
        self._limit.answered(ttft_s, decode_s, call.prompt_tokens, call.answer_tokens, mean)
        self._in_flight -= 1
        if self._shape.clients:
            self._later(self._now + self._source.expovariate(2.0), lambda: self._ask(call.client))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--first-seed", type=int, default=1_000, help="the constants were chosen on those below 300")
    parser.add_argument("--only", choices=[shape.name for shape in SHAPES])
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    arguments = parser.parse_args()
    seeds = range(arguments.first_seed, arguments.first_seed + arguments.seeds)
    throughput, ttft = [], []
    with multiprocessing.Pool(arguments.jobs) as workers:
        for number, shape in enumerate(SHAPES):
            if arguments.only in (None, shape.name):
                found = {limit: mean(workers.starmap(measured, [(number, limit, seed) for seed in seeds]))
                         for limit in (*grid(shape), FIXED, UNLIMITED, KNEE, 0)}  # fmt: skip
                best = best_of({limit: found[limit] for limit in grid(shape)})
                told(shape, best, found)
                if shape.judged or arguments.only:
                    throughput.append(found[0].tokens_per_s / found[best].tokens_per_s)
                    ttft.append(found[0].ttft_p99_s / found[best].ttft_p99_s)
    print(json.dumps({"throughput_ratio": round(min(throughput), 3), "ttft_p99_ratio": round(max(ttft), 3)}))


def measured(number: int, limit: int, seed: int) -> Measured:
    """One trial of a shape. limit: 0 for the learned one; `KNEE` for the knee at every moment."""
    made: Limit = FixedLimit(limit) if limit else ConcurrencyLimit(ConcurrencyConfig())
    if limit == KNEE:
        made = KnownKnee(SHAPES[number])
    return Trial(SHAPES[number], made, seed).run()


def grid(shape: Shape) -> list[int]:
    """Fixed limits to search, up to one that no client waits for, and the knees, which a longer search would find."""
    found, most = [2.0], shape.clients or 400
    while found[-1] < most:
        found.append(found[-1] * GRID_STEP)
    knees = {shape.knee(at_s) for at_s in range(0, int(SECONDS), 10)}
    return sorted({round(one) for one in found} | knees)


def best_of(found: dict[int, Measured]) -> int:
    """The fixed limit to compare with."""
    most = max(one.tokens_per_s for one in found.values())
    enough = [limit for limit, one in found.items() if one.tokens_per_s >= NOT_LOST * most]
    return min(enough, key=lambda limit: found[limit].ttft_p99_s)


def mean(rows: Sequence[Measured]) -> Measured:
    return Measured(*(sum(column) / len(rows) for column in zip(*rows, strict=True)))


def told(shape: Shape, best: int, found: dict[int, Measured]) -> None:
    print(f"{shape.name}: {shape.meaning}{'' if shape.judged else '; shown, not in the last line'}")
    for label, limit in (
        (f"best, {best}", best),
        (str(FIXED), FIXED),
        ("unlimited", UNLIMITED),
        ("knee", KNEE),
        ("learnt", 0),
    ):
        one, held = found[limit], found[best]
        print(
            f"  {label:<10} {one.tokens_per_s:7.0f} tokens/s ({one.tokens_per_s / held.tokens_per_s:5.3f} x), TTFT p99 "
            f"{one.ttft_p99_s:6.2f} s ({one.ttft_p99_s / held.ttft_p99_s:5.2f} x), time per token p99 "
            f"{one.tpot_p99_s * 1e3:4.0f} ms ({one.tpot_p99_s / held.tpot_p99_s:4.2f} x), {one.refused:.1%} refused",
            flush=True,
        )


if __name__ == "__main__":
    main()
