"""The picture of a sweep: goodput, hit rate, waiting and shedding over load."""

from __future__ import annotations

from collections.abc import Sequence

from router.simulator.plot import Panel, svg
from router.simulator.sweep import Row

X_LABEL = "requests/s per replica"


def chart(title: str, rows: Sequence[Row]) -> str:
    """SVG with four panels, one curve per policy."""

    def panel(heading: str, label: str, field: str, factor: float = 1.0, logarithmic: bool = False) -> Panel:
        curves: dict[str, list[tuple[float, float]]] = {}
        for row in rows:
            curves.setdefault(row.policy, []).append((row.load, row.mean(field) * factor))
        return Panel(heading, X_LABEL, label, curves, logarithmic)

    panels = [
        panel("Goodput", "requests/s per replica", "goodput"),
        panel("Hit rate", "% of prompt tokens", "hit_rate", 100),
        panel("TTFT p99 of what was served", "ms", "ttft_p99_ms", logarithmic=True),
        panel("Refused", "% of requests", "shed", 100),
    ]
    return svg(title, panels)
