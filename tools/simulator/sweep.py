"""Runs routers over workloads: every policy gets the same arrivals and machines, one set per seed."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import msgspec

from contracts.errors import ConfigError
from tools.simulator.arrival import Arrival
from tools.simulator.competitors import competitor
from tools.simulator.config import SimulatorConfig
from tools.simulator.simulation import Simulation
from tools.simulator.summary import Summary, summarize


class Row(msgspec.Struct, frozen=True):
    """The results of one policy at one load, once per seed."""

    policy: str
    load: float
    runs: tuple[Summary, ...]

    def mean(self, field: str) -> float:
        """Mean of a field of `Summary` over the seeds."""
        return sum(float(getattr(run, field)) for run in self.runs) / len(self.runs)

    @property
    def kept(self) -> float:
        """Share of the requests that kept both promises."""
        return self.mean("goodput") / self.mean("offered")

    @property
    def kept_by_length(self) -> tuple[float, ...]:
        """The same share for each length class, over the requests of all seeds; 1 for an empty class."""
        classes = zip(*(run.length_classes for run in self.runs), strict=True)
        return tuple(
            sum(each.kept for each in by_seed) / total if (total := sum(each.requests for each in by_seed)) else 1.0
            for by_seed in classes
        )

    def error(self, field: str) -> float:
        """Half the width of that mean's 95 % confidence interval, by the t distribution; 0 for one seed."""
        count = len(self.runs)
        if count < 2:
            return 0.0
        mean = self.mean(field)
        variance = sum((float(getattr(run, field)) - mean) ** 2 for run in self.runs) / (count - 1)
        return student(count - 1) * math.sqrt(variance / count)


def run_once(config: SimulatorConfig, policy: str, arrivals: Sequence[Arrival]) -> Summary:
    """One policy, one workload, one seed."""
    simulation = Simulation(config, competitor(policy, config), arrivals)
    return summarize(config, simulation.run(), simulation.replicas)


def sweep(
    config: SimulatorConfig,
    policies: Sequence[str],
    loads: Sequence[float],
    seeds: int,
    workload: Callable[[float, int], Sequence[Arrival]],
    say: Callable[[str], None] | None = None,
) -> list[Row]:
    """Every policy at every load. workload: the arrivals of a load and a seed. say: gets a line before each run."""
    found: dict[tuple[str, float], list[Summary]] = {}
    number, runs = 0, len(loads) * seeds * len(policies)
    for load in loads:
        for seed in range(seeds):
            arrivals = workload(load, seed)
            if not arrivals:
                raise ConfigError("no request arrived in so short a time; simulate a longer time, or more users")
            seeded = msgspec.structs.replace(config, seed=seed)
            for policy in policies:
                number += 1
                if say is not None:
                    at = f"load {load:g}, " if load else ""
                    say(f"run {number} of {runs}: {at}seed {seed + 1}, {policy}, {len(arrivals):,} requests")
                found.setdefault((policy, load), []).append(run_once(seeded, policy, arrivals))
    return [Row(policy, load, tuple(summaries)) for (policy, load), summaries in found.items()]


def student(freedom: int) -> float:
    """97.5 % quantile of Student's t."""
    table = (12.71, 4.30, 3.18, 2.78, 2.57, 2.45, 2.36, 2.31, 2.26, 2.23)
    return table[freedom - 1] if freedom <= len(table) else 2.0
