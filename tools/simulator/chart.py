"""Draws a sweep: goodput, hit rate, TTFT and refusals, over load or over the hours of a day.

Matplotlib draws SVG line charts: panels of curves in a grid with one legend.
"""

from __future__ import annotations

import io
import math
from collections.abc import Mapping, Sequence

import msgspec

from contracts.errors import ConfigError
from tools.simulator.sweep import Row

PANEL_INCHES = (4.0, 2.7)
LEGEND_INCHES = 0.3
NAMES_PER_ROW = 4

Curve = Sequence[tuple[float, float]]

OFFERED = "offered"
PER_REPLICA = "requests/s per replica"
# heading, label, field of Summary and of Span, factor, logarithmic
PANELS = (
    ("Goodput: both promises met", PER_REPLICA, "goodput", 1.0, False),
    ("Hit rate", "% of prompt tokens", "hit_rate", 100.0, False),
    ("TTFT p99 of served requests", "ms", "ttft_p99_ms", 1.0, True),
    ("Refused", "% of requests", "shed", 100.0, False),
)


class Panel(msgspec.Struct, frozen=True):
    """One chart. curves: by name; a name has one colour in all panels."""

    title: str
    x_label: str
    y_label: str
    curves: Mapping[str, Curve]
    logarithmic: bool = False


def chart(title: str, rows: Sequence[Row]) -> str:
    """SVG with four panels, one curve per policy, over load."""
    return svg(title, [
        Panel(heading, PER_REPLICA, label, _over_load(rows, field, factor), logarithmic)
        for heading, label, field, factor, logarithmic in PANELS
    ])  # fmt: skip


def day_chart(title: str, rows: Sequence[Row], begin_hour: float) -> str:
    """The same panels over time, for runs at one load that begin at an hour of the day. It draws the first seed."""
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


def svg(title: str, panels: Sequence[Panel], columns: int = 2) -> str:
    """A picture with a heading, the panels in a grid and one legend. A curve's group has its panel and name as its id.

    Raises ConfigError if matplotlib is not installed.
    """
    try:
        import matplotlib as mpl
        from matplotlib.figure import Figure
        from matplotlib.lines import Line2D
    except ImportError:
        raise ConfigError("pictures need matplotlib: pip install 'slipstream[plots]'") from None

    names = list(dict.fromkeys(name for panel in panels for name in panel.curves))
    colours = {name: f"C{index}" for index, name in enumerate(names)}
    rows, legend_rows = math.ceil(len(panels) / columns), math.ceil(len(names) / NAMES_PER_ROW)
    width, height = PANEL_INCHES
    # text stays text, and the same curves give the same file
    with mpl.rc_context({"svg.fonttype": "none", "svg.hashsalt": "slipstream", "text.parse_math": False}):
        figure = Figure((columns * width, rows * height + legend_rows * LEGEND_INCHES), layout="constrained")
        figure.suptitle(title)
        lines: dict[str, Line2D] = {}
        for index, panel in enumerate(panels):
            axes = figure.add_subplot(rows, columns, index + 1, title=panel.title)
            axes.set(xlabel=panel.x_label, ylabel=panel.y_label, yscale="log" if panel.logarithmic else "linear")
            axes.grid(alpha=0.3)
            # the first curve on top, so that it stays visible where curves coincide
            for order, (name, curve) in enumerate(panel.curves.items()):
                points = [(x, y) for x, y in sorted(curve) if y > 0 or not panel.logarithmic]
                drawn = axes.plot(*zip(*points, strict=True), ".-", color=colours[name]) if points else []
                for line in drawn:
                    line.set(gid=f"{panel.title}/{name}", zorder=3 - order / 100)
                    lines.setdefault(name, line)
            axes.yaxis.set_major_formatter("{x:,g}")
            if panel.logarithmic:
                axes.yaxis.set_minor_formatter("")
            else:
                axes.set_ylim(bottom=0)
        figure.legend(
            handles=list(lines.values()),
            labels=list(lines),
            loc="outside lower center",
            ncols=NAMES_PER_ROW,
            frameon=False,
        )
        written = io.StringIO()
        figure.savefig(written, format="svg", metadata={"Date": None, "Creator": None})
    return written.getvalue()
