"""Line charts as SVG: panels of curves in a grid with one legend, drawn by matplotlib."""

from __future__ import annotations

import io
import math
from collections.abc import Mapping, Sequence

import msgspec

from contracts.errors import ConfigError

PANEL_INCHES = (4.0, 2.7)
LEGEND_INCHES = 0.3
NAMES_PER_ROW = 4

Curve = Sequence[tuple[float, float]]


class Panel(msgspec.Struct, frozen=True):
    """One chart. curves: by name; a name has one colour in all panels."""

    title: str
    x_label: str
    y_label: str
    curves: Mapping[str, Curve]
    logarithmic: bool = False


def svg(title: str, panels: Sequence[Panel], columns: int = 2) -> str:
    """A picture with a heading, the panels in a grid and one legend. Every curve's group has its panel and name as id.

    Raises ConfigError when matplotlib is not installed.
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
            # the first one on top: where curves lie on each other, that is the one to be seen
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
