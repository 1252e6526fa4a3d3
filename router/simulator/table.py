"""The results of a sweep as text."""

from __future__ import annotations

from collections.abc import Sequence

from router.simulator.sweep import Row

HEAD = (
    f"{'load':>6} {'policy':<20} {'goodput':>8} {'±':>6} {'hit rate':>8} {'TTFT p50':>9} {'TTFT p99':>10} "
    f"{'TPOT p50':>8} {'TPOT p99':>8} {'shed':>6} {'late':>6} {'imbalance':>9} {'kept':>6} {'input':>6} {'output':>6}"
)
LEGEND = (
    "load, goodput: requests/s per replica, not of the fleet; goodput those with both promises kept, ± its 95 %\n"
    "interval over the seeds\n"
    "hit rate: cached part of the prompt tokens served; TTFT: time to the first token, TPOT: per further token, in ms\n"
    "shed: refused; late: served with a promise broken; imbalance: the busiest replica's computing time over the mean\n"
    "kept: requests with both promises kept of all that came; input, output: their part of all prompt tokens and of\n"
    "all tokens to be generated; then kept by length of the prompt: a long one refused is one request and many tokens"
)


def table(rows: Sequence[Row]) -> str:
    """One line per load and policy. Times in ms; goodput in requests per second and replica, with its 95 % interval
    where there are several seeds. A load of 0, as a day has no given one, is shown as what was offered on average."""
    lines = [HEAD + "".join(f" {name:>7}" for name in length_names(rows[0]))] if rows else [HEAD]
    last: float | None = None
    for row in sorted(rows, key=lambda row: row.load):
        if last is not None and row.load != last:
            lines.append("")
        last = row.load
        lines.append(
            f"{row.load or row.mean('offered'):6.4g} {row.policy:<20} {row.mean('goodput'):8.3f} {_interval(row):>6} "
            f"{row.mean('hit_rate'):8.3f} {row.mean('ttft_p50_ms'):9,.0f} {row.mean('ttft_p99_ms'):10,.0f} "
            f"{row.mean('tpot_p50_ms'):8.1f} {row.mean('tpot_p99_ms'):8.1f} {row.mean('shed'):6.1%} "
            f"{row.mean('late'):6.1%} {row.mean('imbalance'):9.2f} {row.kept:6.1%} "
            f"{row.mean('kept_prompt_tokens'):6.1%} {row.mean('kept_output_tokens'):6.1%}"
            + "".join(f" {part:7.1%}" for part in row.kept_by_length)
        )
    return "\n".join(lines)


def length_names(row: Row) -> list[str]:
    """Of the length classes, by the longest prompt of each; the last has none."""
    limits = [each.prompt_tokens for each in row.runs[0].length_classes]
    thousands = [(limit + 1) // 1024 for limit in limits[:-1]]  # a class may end just before a round number
    return [f"<={each}k" for each in thousands] + [f">{thousands[-1]}k" if thousands else "all"]


def _interval(row: Row) -> str:
    return f"{row.error('goodput'):.3f}" if len(row.runs) > 1 else "-"
