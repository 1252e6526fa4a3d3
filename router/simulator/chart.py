"""The pictures of a sweep: goodput, hit rate, waiting and shedding, over load or over the hours of a day."""

from __future__ import annotations

from collections.abc import Sequence

from router.simulator.plot import Panel, svg
from router.simulator.sweep import Row

OFFERED = "offered"
PER_REPLICA = "requests/s per replica"
# heading, label, field of Summary and of Span, factor, logarithmic
PANELS = (
    ("Goodput: both promises kept", PER_REPLICA, "goodput", 1.0, False),
    ("Hit rate", "% of prompt tokens", "hit_rate", 100.0, False),
    ("TTFT p99 of what was served", "ms", "ttft_p99_ms", 1.0, True),
    ("Refused", "% of requests", "shed", 100.0, False),
)


def chart(title: str, rows: Sequence[Row]) -> str:
    """SVG with four panels, one curve per policy, over load."""
    return svg(title, [
        Panel(heading, PER_REPLICA, label, _over_load(rows, field, factor), logarithmic)
        for heading, label, field, factor, logarithmic in PANELS
    ])  # fmt: skip


def day_chart(title: str, rows: Sequence[Row], begin_hour: float) -> str:
    """The same over time, for runs at one load that begin at an hour of the day. Of several seeds the first."""
    panels = []
    for heading, label, field, factor, logarithmic in PANELS:
        curves = {row.policy: _over_time(row, field, factor, begin_hour) for row in rows}
        if field == "goodput" and rows:
            curves[OFFERED] = _over_time(rows[0], "offered", factor, begin_hour)
        panels.append(Panel(heading, "hour of the day", label, curves, logarithmic))
    return svg(title, panels)


def _over_load(rows: Sequence[Row], field: str, factor: float) -> dict[str, list[tuple[float, float]]]:
    curves: dict[str, list[tuple[float, float]]] = {}
    for row in rows:
        curves.setdefault(row.policy, []).append((row.load, row.mean(field) * factor))
    return curves


def _over_time(row: Row, field: str, factor: float, begin_hour: float) -> list[tuple[float, float]]:
    return [(begin_hour + span.middle_s / 3_600, getattr(span, field) * factor) for span in row.runs[0].course]
