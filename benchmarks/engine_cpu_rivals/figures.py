"""From samples to figures: medians and ranges over rounds for throughput and CPU, pooled times for quantiles."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from typing import Literal

from benchmarks.engine_cpu_rivals.rival import Sample

Cells = dict[str, dict[int, list[Sample]]]
"""By rival and concurrency, one sample per round."""
Table = dict[str, dict[str, float]]


def tables(cells: Cells) -> dict[str, Table]:
    """By measure, rival and concurrency, the figure."""
    return {
        "tokens_per_s": _table(cells, lambda samples: statistics.median(_speeds(samples)), 1),
        "tokens_per_s_least": _table(cells, lambda samples: min(_speeds(samples)), 1),
        "tokens_per_s_most": _table(cells, lambda samples: max(_speeds(samples)), 1),
        "ttft_p50_ms": _table(cells, lambda samples: 1e3 * statistics.median(pooled(samples, "first_s")), 2),
        "itl_p99_ms": _table(cells, lambda samples: 1e3 * _p99(pooled(samples, "gaps_s")), 2),
        "cpu_ms_per_token": _table(
            cells, lambda samples: 1e3 * statistics.median(one.cpu_s / one.tokens for one in samples), 3
        ),
    }


def print_tables(found: dict[str, Table]) -> None:
    """One block per measure, rivals as rows."""
    for measure, table in found.items():
        columns = list(next(iter(table.values())))
        print(f"\n{measure:20}" + "".join(f"{'x' + column:>10}" for column in columns))
        for name, row in table.items():
            print(f"  {name:18}" + "".join(f"{row[column]:>10.{2 if row[column] < 100 else 0}f}" for column in columns))


def against_best(found: dict[str, Table], ours: str) -> dict[str, str]:
    """By concurrency, the quickest other engine and our throughput as a multiple of its throughput: the ratio of the
    medians, then the range from our slowest round over its quickest to our quickest round over its slowest."""
    table, least, most = found["tokens_per_s"], found["tokens_per_s_least"], found["tokens_per_s_most"]
    others = {name: row for name, row in table.items() if not name.startswith(ours)}
    if ours not in table or not others:
        return {}
    compared = {}
    for column, value in table[ours].items():
        best = max(others, key=lambda name: others[name][column])
        low, high = least[ours][column] / most[best][column], most[ours][column] / least[best][column]
        compared[column] = f"{value / others[best][column]:.2f} ({low:.2f} to {high:.2f}) x {best}"
    return compared


def _table(cells: Cells, figure: Callable[[list[Sample]], float], digits: int) -> Table:
    return {
        name: {str(concurrent): round(figure(samples), digits) for concurrent, samples in row.items()}
        for name, row in cells.items()
    }


def _speeds(samples: list[Sample]) -> list[float]:
    return [sample.tokens / sample.elapsed_s for sample in samples]


def pooled(samples: list[Sample], times: Literal["first_s", "gaps_s"]) -> list[float]:
    """The times of all samples in one list."""
    return [value for sample in samples for value in getattr(sample, times)]


def _p99(values: list[float]) -> float:
    return statistics.quantiles(values, n=100)[98]
