"""How far the simulator's predictions are from the real embedded engine: learnt at some loads, tried at others.

    python -m benchmarks.simulator_validation [--model models/slipstream-code] [--seconds 20]

The real engine is stepped by hand, and its clock is the CPU time of its own thread: requests arrive by that clock, so
a busy machine changes nothing. Calibration: prompts alone, batches of streams alone and one mixed load give a step's
price per prompt token, pair of attention, stream and cached token, by least squares. Prediction: the modelled engine
with those prices meets Poisson arrivals at three other loads, and so does the real one. Last line: JSON with both.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import time

import msgspec
import numpy as np

from engines.embedded.build import build_engine
from engines.embedded.config import EngineConfig
from engines.embedded.engine import Engine
from engines.embedded.request import Request, Sampling
from engines.performance.engine import Ended, EngineLimits, FirstToken, ModelledEngine
from engines.performance.job import Job
from engines.performance.roofline import pairs
from engines.tokenizer.tokenizer import Tokenizer

CONTEXT_TOKENS = 2_048
PROMPTS = (16, 64, 128, 256, 512, 900)
BATCHES = (1, 2, 4, 8, 16, 24)
LEARNT_AT = 0.45
LOADS = (0.3, 0.6, 0.8)
"""Of the engine's own capacity as calibrated."""


class Arrival(msgspec.Struct, frozen=True):
    """One request of the trial."""

    at_s: float
    prompt: tuple[int, ...]
    output_tokens: int


class MeasuredRates:
    """Prices as `StepTimes`."""

    kv_capacity_tokens = 1 << 24

    def __init__(self, weights: list[float]) -> None:
        self.prefill_step_s, self.token_s, self.pair_s, self.step_s_alone, self.stream_s, self.read_s_per_token = (
            weights
        )

    def step_s(self, prefill_tokens: int, prefill_pairs: float, sequences: int, context_tokens: int) -> float:
        """As `Roofline.step_s`."""
        price = self.stream_s * sequences + self.read_s_per_token * context_tokens
        if prefill_tokens:
            return price + self.prefill_step_s + self.token_s * prefill_tokens + self.pair_s * prefill_pairs
        return price + self.step_s_alone

    def decode_s(self, sequences: int, context_tokens: int) -> float:
        """As `Roofline.decode_s`."""
        return self.step_s(0, 0.0, sequences, context_tokens)

    def decode_run_s(self, steps: int, sequences: int, context_tokens: int) -> float:
        """As `Roofline.decode_run_s`."""
        grown = sequences * steps * (steps - 1) / 2
        return steps * self.decode_s(sequences, context_tokens) + self.read_s_per_token * grown


class Real:
    """The embedded engine on a clock of its own CPU time."""

    def __init__(self, engine: Engine, vocabulary: int) -> None:
        self.engine, self.vocabulary = engine, vocabulary
        self._numbered = 0

    def submit(self, prompt: tuple[int, ...], output_tokens: int) -> str:
        self._numbered += 1
        rid = str(self._numbered)
        self.engine.submit(Request(rid, (prompt,), Sampling(output_tokens, 0.0)))
        return rid

    def step(self) -> tuple[float, list[tuple[str, int, bool]]]:
        """CPU seconds, and (id, tokens so far, ended) of those with news."""
        begun = time.thread_time()
        deltas = self.engine.step()
        taken = time.thread_time() - begun
        return taken, [(delta.rid, delta.completion_tokens, delta.finish is not None) for delta in deltas]

    def finish(self) -> None:
        while self.engine.busy:
            self.step()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="models/slipstream-code")
    parser.add_argument("--seconds", type=float, default=20.0, help="of the engine's CPU time, per load")
    arguments = parser.parse_args()
    tokenizer = Tokenizer.load(arguments.model)
    config = EngineConfig(model=arguments.model, threads=1)
    engine = build_engine(config, CONTEXT_TOKENS, tokenizer)
    real = Real(engine, engine._vocabulary)
    source = random.Random(1)
    rates = MeasuredRates(calibrate(real, source, arguments.seconds / 2))
    print(
        f"calibrated: {rates.token_s * 1e6:.1f} us per prompt token + {rates.prefill_step_s * 1e3:.2f} ms a step; "
        f"{rates.step_s_alone * 1e3:.2f} ms a step + {rates.stream_s * 1e6:.0f} us per stream when decoding"
    )
    limits = EngineLimits(
        batch_tokens=config.scheduler.max_batch_tokens, max_running=config.scheduler.max_running,
        block_tokens=config.kv.page_tokens, capacity_tokens=1 << 24,
    )  # fmt: skip
    results = {}
    for load in LOADS:
        arrivals = poisson(rates, load, arguments.seconds, real.vocabulary, source)
        found, said = measured(real, arrivals), predicted(rates, limits, arrivals)
        errors = {name: round(said[name] / found[name] - 1, 4) for name in found}
        results[f"{load:g}"] = {"real": found, "simulated": said, "error": errors}
        print(f"load {load:g}, {len(arrivals)} requests: " + "; ".join(
            f"{name} {found[name]:.4g} real, {said[name]:.4g} simulated ({errors[name]:+.1%})" for name in found
        ))  # fmt: skip
    worst = max(abs(error) for result in results.values() for error in result["error"].values())
    print(json.dumps({"loads": results, "worst_error": round(worst, 4)}))


def tokens(source: random.Random, vocabulary: int, count: int) -> tuple[int, ...]:
    return tuple(source.randrange(5, vocabulary) for _ in range(count))


def calibrate(real: Real, source: random.Random, seconds: float) -> list[float]:
    """Least squares over single steps: what each part of one costs."""
    rows, times = [], []
    for turn in range(4):
        for length in PROMPTS:
            real.submit(tokens(source, real.vocabulary, length), 1)
            done = 0
            while real.engine.busy:
                taken, _ = real.step()
                new = min(length - done, 512)
                if turn and new > 0:  # the first turn warms kernels up
                    rows.append([1.0, new, pairs(new, done), 0.0, 0.0, 0.0])
                    times.append(taken)
                done += new
        for batch in BATCHES:
            length = 64 * (1 + turn)
            for _ in range(batch):
                real.submit(tokens(source, real.vocabulary, length), 24)
            while any(sequence.is_new for sequence in real.engine.scheduler.running) or real.engine.scheduler.waiting:
                real.step()
            step = 1
            while len(real.engine.scheduler.running) == batch:
                taken, _ = real.step()
                if turn:
                    rows.append([0.0, 0.0, 0.0, 1.0, batch, batch * (length + step)])
                    times.append(taken)
                step += 1
            real.finish()
    guess = MeasuredRates(least_squares(rows, times))
    mixed_rows, mixed_times = busy_steps(real, poisson(guess, LEARNT_AT, seconds, real.vocabulary, source))
    return least_squares(rows + mixed_rows, times + mixed_times)


def least_squares(rows: list[list[float]], times: list[float]) -> list[float]:
    """Weights that are not negative, errors relative to the times."""
    scale = np.maximum(np.array(times), 1e-4)[:, None]
    features = np.array(rows) / scale
    weights, *_ = np.linalg.lstsq(features, np.array(times) / scale[:, 0], rcond=None)
    return [max(float(weight), 0.0) for weight in weights]


def busy_steps(real: Real, arrivals: list[Arrival]) -> tuple[list[list[float]], list[float]]:
    """Features and times of the steps of a mixed load: prompts and streams together cost other than apart."""
    rows, times = [], []
    now, left = 0.0, list(arrivals)
    while left or real.engine.busy:
        if not real.engine.busy:
            now = max(now, left[0].at_s)
        while left and left[0].at_s <= now:
            arrival = left.pop(0)
            real.submit(arrival.prompt, arrival.output_tokens)
        before = {sequence: (sequence.computed, sequence.is_new) for sequence in real.engine.scheduler.running}
        taken, _ = real.step()
        now += taken
        new = looked = streams = context = 0.0
        for sequence in {*before, *real.engine.scheduler.running}:
            done, prompt = before.get(sequence, (0, True))
            fresh = sequence.computed - done
            if prompt:
                new += fresh
                looked += pairs(fresh, done)
            else:
                streams += 1
                context += done
        rows.append([float(new > 0), new, looked, float(new == 0), streams, context])
        times.append(taken)
    return rows, times


def poisson(rates: MeasuredRates, load: float, seconds: float, vocabulary: int, source: random.Random) -> list[Arrival]:
    """Lengths the calibration has not seen; the rate is a share of what single requests would fill."""
    prompt, output = 200.0, 40.0
    work_s = rates.token_s * prompt + rates.prefill_step_s + output * (rates.step_s_alone / 8 + rates.stream_s)
    at, made = 0.0, []
    while at < seconds:
        at += source.expovariate(load / work_s)
        length = min(int(source.lognormvariate(5.0, 0.8)) + 8, 1_200)
        made.append(Arrival(at, tokens(source, vocabulary, length), min(int(source.expovariate(1 / output)) + 2, 300)))
    return made


def figures(first: dict[str, float], ended: dict[str, float], arrivals: dict[str, Arrival]) -> dict[str, float]:
    ttft = sorted((first[rid] - arrival.at_s) * 1e3 for rid, arrival in arrivals.items())
    tpot = [(ended[rid] - first[rid]) / (arrival.output_tokens - 1) * 1e3 for rid, arrival in arrivals.items()]
    made = sum(arrival.output_tokens for arrival in arrivals.values())
    return {
        "ttft_p50_ms": round(ttft[len(ttft) // 2], 3),
        "ttft_p99_ms": round(ttft[min(int(len(ttft) * 0.99), len(ttft) - 1)], 3),
        "tpot_mean_ms": round(statistics.fmean(tpot), 3),
        "tokens_per_s": round(made / max(ended.values()), 2),
    }


def measured(real: Real, arrivals: list[Arrival]) -> dict[str, float]:
    now, left = 0.0, list(arrivals)
    first: dict[str, float] = {}
    ended: dict[str, float] = {}
    known: dict[str, Arrival] = {}
    while left or real.engine.busy:
        if not real.engine.busy:
            now = max(now, left[0].at_s)
        while left and left[0].at_s <= now:
            arrival = left.pop(0)
            known[real.submit(arrival.prompt, arrival.output_tokens)] = arrival
        taken, news = real.step()
        now += taken
        for rid, count, over in news:
            if count:
                first.setdefault(rid, now)
            if over:
                first.setdefault(rid, now)
                ended[rid] = now
    return figures(first, ended, known)


def predicted(rates: MeasuredRates, limits: EngineLimits, arrivals: list[Arrival]) -> dict[str, float]:
    engine = ModelledEngine(rates, limits)
    left = list(enumerate(arrivals))
    first: dict[str, float] = {}
    ended: dict[str, float] = {}
    while left or engine.step_ends_at is not None:
        if left and (engine.step_ends_at is None or left[0][1].at_s < engine.step_ends_at):
            number, arrival = left.pop(0)
            engine.submit(Job(str(number), len(arrival.prompt), arrival.output_tokens), arrival.at_s)
            continue
        assert engine.step_ends_at is not None
        now = engine.step_ends_at
        for each in engine.finish_step(now):
            if isinstance(each, FirstToken):
                first[each.job.id] = now
            elif isinstance(each, Ended):
                ended[each.job.id] = now
    return figures(first, ended, {str(number): arrival for number, arrival in enumerate(arrivals)})


if __name__ == "__main__":
    main()
