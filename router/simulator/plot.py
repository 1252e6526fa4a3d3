"""Line charts as SVG, written by hand: a few panels of curves need no plotting library."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from html import escape

import msgspec

COLOURS = ("#d1495b", "#2e86ab", "#3a7d44", "#8e6bbf", "#e08e45", "#7a7a7a", "#1b998b", "#b5838d", "#5c677d")
WIDTH, HEIGHT = 380, 250
LEFT, RIGHT, TOP, BOTTOM = 58, 14, 34, 42
LEGEND_ROW = 18
LEGEND_COLUMN = 170
TICKS = 5
MOST_NAMED = 10
"""Values of x that are written out each."""

Curve = Sequence[tuple[float, float]]


class Panel(msgspec.Struct, frozen=True):
    """One chart. curves: by name; a name has one colour in all panels."""

    title: str
    x_label: str
    y_label: str
    curves: Mapping[str, Curve]
    logarithmic: bool = False


def svg(title: str, panels: Sequence[Panel], columns: int = 2) -> str:
    """A picture with a heading, the panels in a grid and one legend."""
    names = list(dict.fromkeys(name for panel in panels for name in panel.curves))
    colours = {name: COLOURS[index % len(COLOURS)] for index, name in enumerate(names)}
    rows = math.ceil(len(panels) / columns)
    per_row = max(columns * WIDTH // LEGEND_COLUMN, 1)
    legend = math.ceil(len(names) / per_row) * LEGEND_ROW
    width, height = columns * WIDTH, 40 + rows * HEIGHT + legend + 12
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
        'font-family="sans-serif" font-size="11">',
        f'<rect width="{width}" height="{height}" fill="#ffffff"/>',
        f'<text x="{width / 2}" y="22" text-anchor="middle" font-size="15" fill="#222">{escape(title)}</text>',
    ]
    for index, panel in enumerate(panels):
        x, y = index % columns * WIDTH, 40 + index // columns * HEIGHT
        parts.append(f'<g transform="translate({x},{y})">{_panel(panel, colours)}</g>')
    for index, name in enumerate(names):
        x = 20 + index % per_row * LEGEND_COLUMN
        y = 40 + rows * HEIGHT + index // per_row * LEGEND_ROW + 10
        parts.append(f'<line x1="{x}" y1="{y}" x2="{x + 22}" y2="{y}" stroke="{colours[name]}" stroke-width="3"/>')
        parts.append(f'<text x="{x + 28}" y="{y + 4}" fill="#222">{escape(name)}</text>')
    return "\n".join([*parts, "</svg>", ""])


def _panel(panel: Panel, colours: Mapping[str, str]) -> str:
    points = [point for curve in panel.curves.values() for point in curve]
    if not points:
        return ""
    low_x, high_x = min(x for x, _ in points), max(x for x, _ in points)
    values = [y for _, y in points if y > 0 or not panel.logarithmic]
    low_y = min(values, default=1.0) if panel.logarithmic else 0.0
    high_y = max(values, default=1.0)
    if panel.logarithmic:
        low_y, high_y = 10 ** math.floor(math.log10(low_y)), 10 ** math.ceil(math.log10(high_y))
    ticks = _decades(low_y, high_y) if panel.logarithmic else _steps(high_y)
    high_y = max(high_y, ticks[-1])

    def at_x(x: float) -> float:
        return LEFT + (x - low_x) / ((high_x - low_x) or 1.0) * (WIDTH - LEFT - RIGHT)

    def at_y(y: float) -> float:
        if panel.logarithmic:
            share = math.log(max(y, low_y) / low_y) / (math.log(high_y / low_y) or 1.0)
        else:
            share = y / (high_y or 1.0)
        return HEIGHT - BOTTOM - share * (HEIGHT - TOP - BOTTOM)

    middle = (LEFT + WIDTH - RIGHT) / 2
    parts = [f'<text x="{middle}" y="20" text-anchor="middle" font-size="13" fill="#222">{escape(panel.title)}</text>']
    for tick in ticks:
        y = at_y(tick)
        parts.append(f'<line x1="{LEFT}" y1="{y:.1f}" x2="{WIDTH - RIGHT}" y2="{y:.1f}" stroke="#ddd"/>')
        parts.append(f'<text x="{LEFT - 6}" y="{y + 4:.1f}" text-anchor="end" fill="#555">{tick:,g}</text>')
    for x in _x_ticks({x for x, _ in points}):
        parts.append(f'<text x="{at_x(x):.1f}" y="{HEIGHT - 26}" text-anchor="middle" fill="#555">{x:g}</text>')
    parts.append(
        f'<text x="{middle}" y="{HEIGHT - 9}" text-anchor="middle" fill="#222">{escape(panel.x_label)}</text>'
        f'<text x="12" y="{HEIGHT / 2}" text-anchor="middle" fill="#222" '
        f'transform="rotate(-90 12 {HEIGHT / 2})">{escape(panel.y_label)}</text>'
    )
    # the first one on top: where curves lie on each other, that is the one to be seen
    for name, curve in reversed(list(panel.curves.items())):
        path = " ".join(f"{at_x(x):.1f},{at_y(y):.1f}" for x, y in sorted(curve))
        parts.append(f'<polyline points="{path}" fill="none" stroke="{colours[name]}" stroke-width="2"/>')
        radius = 2.6 if len(curve) <= MOST_NAMED else 1.4
        parts += [
            f'<circle cx="{at_x(x):.1f}" cy="{at_y(y):.1f}" r="{radius}" fill="{colours[name]}"/>' for x, y in curve
        ]
    return "".join(parts)


def _x_ticks(values: set[float]) -> list[float]:
    """Every value while they are few, else round numbers between them."""
    if len(values) <= MOST_NAMED:
        return sorted(values)
    low, high = min(values), max(values)
    step = _step(high - low)
    return [step * index for index in range(math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9) + 1)]


def _steps(high: float) -> list[float]:
    """About five round numbers from 0 to at least `high`."""
    step = _step(high)
    return [step * index for index in range(math.ceil((high or 1.0) / step - 1e-9) + 1)]


def _step(length: float) -> float:
    """A round number that goes about five times into a length."""
    rough = (length or 1.0) / TICKS
    power = 10.0 ** math.floor(math.log10(rough))
    return next(factor * power for factor in (1, 2, 5, 10) if factor * power >= rough)


def _decades(low: float, high: float) -> list[float]:
    first, last = round(math.log10(low)), round(math.log10(high))
    factors = (1, 2, 5) if last - first <= 1 else (1,)
    found = [factor * 10.0**power for power in range(first, last) for factor in factors]
    return [*found, 10.0**last]
