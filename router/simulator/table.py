"""The results of a sweep as text."""

from __future__ import annotations

from collections.abc import Sequence

from router.simulator.sweep import Row

HEAD = (
    f"{'load':>6} {'policy':<20} {'goodput':>8} {'±':>6} {'hit rate':>8} {'TTFT p50':>9} {'TTFT p99':>10} "
    f"{'TPOT p50':>8} {'TPOT p99':>8} {'shed':>6} {'late':>6} {'imbalance':>9}"
)
LEGEND = (
    "load, goodput: requests/s and replica, goodput those with both promises kept, ± its 95 % interval over the seeds\n"
    "hit rate: cached part of the prompt tokens served; TTFT: time to the first token, TPOT: per further token, in ms\n"
    "shed: refused; late: served with a promise broken; imbalance: the busiest replica's computing time over the mean"
)


def table(rows: Sequence[Row]) -> str:
    """One line per load and policy. Times in ms; goodput in requests per second and replica, with its 95 % interval
    where there are several seeds. A load of 0, as a day has no given one, is shown as what was offered on average."""
    lines = [HEAD]
    last: float | None = None
    for row in sorted(rows, key=lambda row: row.load):
        if last is not None and row.load != last:
            lines.append("")
        last = row.load
        lines.append(
            f"{row.load or row.mean('offered'):6.4g} {row.policy:<20} {row.mean('goodput'):8.3f} {_interval(row):>6} "
            f"{row.mean('hit_rate'):8.3f} {row.mean('ttft_p50_ms'):9,.0f} {row.mean('ttft_p99_ms'):10,.0f} "
            f"{row.mean('tpot_p50_ms'):8.1f} {row.mean('tpot_p99_ms'):8.1f} {row.mean('shed'):6.1%} "
            f"{row.mean('late'):6.1%} {row.mean('imbalance'):9.2f}"
        )
    return "\n".join(lines)


def _interval(row: Row) -> str:
    return f"{row.error('goodput'):.3f}" if len(row.runs) > 1 else "-"
