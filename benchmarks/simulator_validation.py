"""How far the simulator's predictions are from the real embedded engine.

    python -m benchmarks.simulator_validation [--model models/slipstream-code] [--rounds 5] [--seconds 3] [--seed 1]
        [--check]

The engine is stepped by hand and its clock is the CPU time of its own thread. A machine's speed drifts nevertheless, so
prices of a step (per prompt token, pair of attention, stream, cached token) are learnt directly before and after every
run, at two other loads. The modelled engine with those prices then meets the same arrivals; a second prediction with
prices from the very steps of that run shows what is left when only batching and queueing have to be foreseen.

Loads are shares of the saturation that was measured: the requests per second that the engine served at SATURATED,
first in every round (the median of the rounds so far, for one is short). Near saturation a few percent in price are
the whole queue, so 0.8 is run three times in every round. Each run gives an error; what is judged is their median,
beside it stands the error of all runs taken together and the spread. Criterion, fixed beforehand: time to the first
token (p50) at 0.3, 0.6 and 0.8, and tokens/s at these and in saturation, within 15 %; with `--check` a
run that misses it ends with an error. Last line: JSON.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
from collections.abc import Sequence

import msgspec

from benchmarks.bounds import add_check, tell
from benchmarks.step_prices import StepPrices, learnt
from benchmarks.stepped_engine import Arrival, Run, Step, SteppedEngine
from engines.performance.engine import Ended, EngineLimits, FirstToken, ModelledEngine
from engines.performance.job import Job

CONTEXT_TOKENS = 2_048
LEARNT_AT = (0.45, 1.2)
"""Loads below and beyond saturation: the price of a step with many streams cannot be learnt from steps with few."""
SATURATED = 1.6
ORDER = (SATURATED, 0.3, 0.8, 0.6, 0.8, 0.8)
"""The loads of one round, in order."""
LOADS = tuple(sorted(set(ORDER)))
OUTPUT_TOKENS = 40
CRITERION = 0.15
JUDGED = {load: ("ttft_p50_ms", "tokens_per_s") if load < 1 else ("tokens_per_s",) for load in LOADS}


class Trial(msgspec.Struct):
    """One load in one round."""

    arrivals: list[Arrival]
    real: Run
    foreseen: Run
    from_own_steps: Run


class Traffic:
    """Poisson arrivals with the lengths of chats: log-normal prompts, exponential answers."""

    def __init__(self, vocabulary: int, seed: int) -> None:
        self._source = random.Random(seed)
        self._vocabulary = vocabulary
        self.prompt_tokens = statistics.fmean(self._length() for _ in range(10_000))

    def at(self, load: float, saturation: float, seconds: float) -> list[Arrival]:
        """Draw arrivals. load: the share of the requests per second that the engine can serve."""
        at = 0.0
        drawn: list[Arrival] = []
        while (at := at + self._source.expovariate(load * saturation)) < seconds or not drawn:
            prompt = tuple(self._source.randrange(5, self._vocabulary) for _ in range(self._length()))
            drawn.append(Arrival(at, prompt, min(int(self._source.expovariate(1 / OUTPUT_TOKENS)) + 2, 300)))
        return drawn

    def guess(self, prices: StepPrices) -> float:
        """The estimated requests per second at saturation, with eight streams in a step."""
        work_s = prices.prompt_step_s + prices.token_s * self.prompt_tokens
        return 1 / (work_s + OUTPUT_TOKENS * (prices.decode_step_s / 8 + prices.stream_s))

    def _length(self) -> int:
        return min(int(self._source.lognormvariate(5.0, 0.8)) + 8, 1_200)


def foreseen(prices: StepPrices, limits: EngineLimits, arrivals: Sequence[Arrival]) -> Run:
    """Run the modelled engine on the arrivals."""
    engine, run = ModelledEngine(prices, limits), Run([], {}, {})
    left = list(enumerate(arrivals))
    while left or engine.step_ends_at is not None:
        if left and (engine.step_ends_at is None or left[0][1].at_s < engine.step_ends_at):
            number, arrival = left.pop(0)
            engine.submit(Job(str(number), len(arrival.prompt), arrival.output_tokens), arrival.at_s)
            continue
        assert engine.step_ends_at is not None
        now = engine.step_ends_at
        for each in engine.finish_step(now):
            if isinstance(each, FirstToken):
                run.first_s[int(each.job.id)] = now
            elif isinstance(each, Ended):
                run.ended_s[int(each.job.id)] = now
    return run


def figures(runs: Sequence[tuple[Sequence[Arrival], Run]]) -> dict[str, float]:
    """The figures of several runs together."""
    ttft: list[float] = []
    tpot: list[float] = []
    generated = taken = 0.0
    for arrivals, run in runs:
        for number, arrival in enumerate(arrivals):
            ttft.append((run.first_s[number] - arrival.at_s) * 1e3)
            tpot.append((run.ended_s[number] - run.first_s[number]) / (arrival.output_tokens - 1) * 1e3)
            generated += arrival.output_tokens
        taken += max(run.ended_s.values())
    ttft.sort()
    return {
        "ttft_p50_ms": round(ttft[len(ttft) // 2], 3), "ttft_p90_ms": round(ttft[int(len(ttft) * 0.9)], 3),
        "ttft_p99_ms": round(ttft[int(len(ttft) * 0.99)], 3), "tpot_mean_ms": round(statistics.fmean(tpot), 4),
        "tokens_per_s": round(generated / taken, 2),
    }  # fmt: skip


def measure(engine: SteppedEngine, traffic: Traffic, rounds: int, seconds: float) -> dict[float, list[Trial]]:
    limits = EngineLimits(
        batch_tokens=engine.config.scheduler.max_batch_tokens, max_running=engine.config.scheduler.max_running,
        block_tokens=engine.config.kv.page_tokens, capacity_tokens=1 << 24,
    )  # fmt: skip
    saturation = traffic.guess(StepPrices([5e-3, 5e-5, 0.0, 2e-4, 1e-4, 0.0, 0.0, 0.0]))
    for _ in range(2):  # kernels are compiled for a size when it first occurs
        saturation = traffic.guess(learnt(learning_steps(engine, traffic, saturation, 2 * seconds)))
    trials: dict[float, list[Trial]] = {load: [] for load in LOADS}
    served: list[float] = []
    """The requests per second at saturation, by round."""
    for number in range(rounds):
        before = learning_steps(engine, traffic, saturation, seconds / 2)
        for load in ORDER:
            arrivals = traffic.at(load, saturation, seconds)
            real = engine.run(arrivals)
            if load == SATURATED:
                served.append(len(arrivals) / max(real.ended_s.values()))
                saturation = statistics.median(served)
            after = learning_steps(engine, traffic, saturation, seconds / 2)
            prices, own = learnt(before + after), learnt(real.steps)
            trials[load].append(
                Trial(arrivals, real, foreseen(prices, limits, arrivals), foreseen(own, limits, arrivals))
            )
            before = after
        print(
            f"round {number + 1}: {served[-1]:.1f} requests/s at saturation; {prices.token_s * 1e6:.1f} us per prompt "
            f"token + {prices.prompt_step_s * 1e3:.1f} ms a step; {prices.stream_s * 1e6:.0f} us per stream + "
            f"{prices.decode_step_s * 1e6:.0f} us a step when decoding",
            flush=True,
        )
    return trials


def learning_steps(engine: SteppedEngine, traffic: Traffic, saturation: float, seconds: float) -> list[Step]:
    return [step for load in LEARNT_AT for step in engine.run(traffic.at(load, saturation, seconds)).steps]


def error_of(trial: Trial, predicted: Run, name: str) -> float:
    return figures([(trial.arrivals, predicted)])[name] / figures([(trial.arrivals, trial.real)])[name] - 1


def missed(errors: dict[float, dict[str, float]]) -> list[str]:
    """The judged errors beyond the criterion; NaN counts as beyond it. errors: by load and figure."""
    return [
        f"load {load:g}: {name} is off by {errors[load][name]:+.1%}, more than {CRITERION:.0%}"
        for load, names in JUDGED.items()
        for name in names
        if not abs(errors[load][name]) <= CRITERION
    ]


def report(trials: dict[float, list[Trial]]) -> list[str]:
    """Print all figures; returns the errors beyond the criterion."""
    results: dict[str, dict[str, object]] = {}
    errors: dict[float, dict[str, float]] = {}
    worst = worst_own = 0.0
    for load, rounds in trials.items():
        real = figures([(trial.arrivals, trial.real) for trial in rounds])
        simulated = figures([(trial.arrivals, trial.foreseen) for trial in rounds])
        own = figures([(trial.arrivals, trial.from_own_steps) for trial in rounds])
        requests = sum(len(trial.arrivals) for trial in rounds)
        print(f"load {load:g}, {requests} requests in {len(rounds)} runs:")
        found, errors[load] = results.setdefault(f"{load:g}", {}), {}
        for name in real if load < 1 else ("tokens_per_s",):
            singly = [error_of(trial, trial.foreseen, name) for trial in rounds]
            error = errors[load][name] = statistics.median(singly)
            error_own = statistics.median(error_of(trial, trial.from_own_steps, name) for trial in rounds)
            together = simulated[name] / real[name] - 1
            found[name] = {
                "real": real[name], "simulated": simulated[name],
                "error": round(error, 4), "together": round(together, 4),
                "error_own_steps": round(error_own, 4), "own_steps_together": round(own[name] / real[name] - 1, 4),
                "runs": [round(min(singly), 4), round(max(singly), 4)],
            }  # fmt: skip
            judged = name in JUDGED[load]
            if judged:
                worst, worst_own = max(worst, abs(error)), max(worst_own, abs(error_own))
            print(
                f"  {name:<13} {real[name]:>10,.4g} real {simulated[name]:>10,.4g} simulated {error:>+7.1%}"
                f"{' *' if judged else '  '} runs {min(singly):+.1%} to {max(singly):+.1%}, together {together:+.1%};"
                f" own steps {error_own:+.1%}"
            )
    beyond = missed(errors)
    print(f"* judged: worst {worst:.1%}, criterion {CRITERION:.0%}: {'NOT met' if beyond else 'met'}")
    print(json.dumps({"loads": results, "worst_judged": round(worst, 4), "worst_judged_own_steps": round(worst_own, 4),
                      "criterion": CRITERION, "met": not beyond}))  # fmt: skip
    return beyond


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="models/slipstream-code")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=3.0, help="of the engine's time, per load and round")
    parser.add_argument("--seed", type=int, default=1)
    add_check(parser)
    arguments = parser.parse_args()
    engine = SteppedEngine(arguments.model, CONTEXT_TOKENS)
    trials = measure(engine, Traffic(engine.vocabulary, arguments.seed), arguments.rounds, arguments.seconds)
    tell(report(trials), arguments.check)


if __name__ == "__main__":
    main()
