"""The results of a sweep as text."""

from __future__ import annotations

from collections.abc import Sequence

from tools.simulator.sweep import Row

LEGEND = (
    "load, goodput: requests/s per replica, not of the fleet; goodput: requests that met both promises\n"
    "kept: their share of all requests; hit rate: cached share of the prompt tokens served\n"
    "TTFT: time to the first token, TPOT: per further token, in ms"
)
WIDE_LEGEND = (
    "±: goodput's 95 % interval over the seeds; shed: refused; late: served with a promise broken\n"
    "imbalance: the busiest replica's computing time over the mean; input, output: the kept requests' share of all\n"
    "prompt tokens and of all output tokens; last columns: kept by length of the prompt, for a refused long prompt is\n"
    "one request and many tokens"
)
ALIKE = 0.01
"""Relative difference in goodput below which policies count as equal."""


def conclusion(rows: Sequence[Row]) -> str:
    """Rank the policies at the highest load, the best first: by requests with both promises kept, then by TTFT p99."""
    load = max(row.load for row in rows)
    most = max(row.kept for row in rows if row.load == load)

    def rank(row: Row) -> tuple[float, float]:
        kept = most if row.kept >= most * (1 - ALIKE) else row.kept
        return -kept, row.mean("ttft_p99_ms")

    ranked = sorted((row for row in rows if row.load == load), key=rank)
    each = (
        f"{row.policy} keeps {row.kept:.1%} (TTFT p99 {row.mean('ttft_p99_ms'):,.0f} ms, "
        f"TPOT p99 {row.mean('tpot_p99_ms'):.1f} ms)"
        for row in ranked
    )
    order = ", the best first: " if len(ranked) > 1 else " "
    sentence = f"At {load or ranked[0].mean('offered'):.4g} requests/s a replica{order}{'; '.join(each)}."
    if len(ranked) > 1 and all(row.kept >= most * (1 - ALIKE) for row in ranked):
        sentence += " All policies meet their promises equally here: a higher --load separates them."
    return sentence


def table(rows: Sequence[Row], wide: bool = False) -> str:
    """One line per load and policy. Times are in ms, goodput in requests per second and replica. A wide table has the
    95 % interval of goodput if there are several seeds. A load of 0, that of a day, is shown as the average offered
    load."""
    lines = [_head(rows, wide)]
    last: float | None = None
    for row in sorted(rows, key=lambda row: row.load):
        if last is not None and row.load != last:
            lines.append("")
        last = row.load
        lines.append(_wide(row) if wide else _narrow(row))
    return "\n".join(lines)


def _head(rows: Sequence[Row], wide: bool) -> str:
    if not wide:
        return f"{'load':>6} {'policy':<20} {'goodput':>8} {'kept':>6} {'hit rate':>8} {'TTFT p99':>10} {'TPOT p99':>8}"
    return (
        f"{'load':>6} {'policy':<20} {'goodput':>8} {'±':>6} {'hit rate':>8} {'TTFT p50':>9} {'TTFT p99':>10} "
        f"{'TPOT p50':>8} {'TPOT p99':>8} {'shed':>6} {'late':>6} {'imbalance':>9} {'kept':>6} "
        f"{'input':>6} {'output':>6}" + "".join(f" {name:>7}" for name in (length_names(rows[0]) if rows else ()))
    )


def _narrow(row: Row) -> str:
    return (
        f"{row.load or row.mean('offered'):6.4g} {row.policy:<20} {row.mean('goodput'):8.3f} {row.kept:6.1%} "
        f"{row.mean('hit_rate'):8.3f} {row.mean('ttft_p99_ms'):10,.0f} {row.mean('tpot_p99_ms'):8.1f}"
    )


def _wide(row: Row) -> str:
    return (
        f"{row.load or row.mean('offered'):6.4g} {row.policy:<20} {row.mean('goodput'):8.3f} {_interval(row):>6} "
        f"{row.mean('hit_rate'):8.3f} {row.mean('ttft_p50_ms'):9,.0f} {row.mean('ttft_p99_ms'):10,.0f} "
        f"{row.mean('tpot_p50_ms'):8.1f} {row.mean('tpot_p99_ms'):8.1f} {row.mean('shed'):6.1%} "
        f"{row.mean('late'):6.1%} {row.mean('imbalance'):9.2f} {row.kept:6.1%} "
        f"{row.mean('kept_prompt_tokens'):6.1%} {row.mean('kept_output_tokens'):6.1%}"
        + "".join(f" {part:7.1%}" for part in row.kept_by_length)
    )


def length_names(row: Row) -> list[str]:
    """Names of the length classes, by the longest prompt of each; the last has no longest one."""
    limits = [each.prompt_tokens for each in row.runs[0].length_classes]
    thousands = [(limit + 1) // 1024 for limit in limits[:-1]]  # a class may end just before a round number
    return [f"<={each}k" for each in thousands] + [f">{thousands[-1]}k" if thousands else "all"]


def _interval(row: Row) -> str:
    return f"{row.error('goodput'):.3f}" if len(row.runs) > 1 else "-"
