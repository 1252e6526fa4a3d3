"""Draws the distributions of a run's TTFT, TPOT and gaps, and TTFT over time, as SVG and without a library."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from xml.sax.saxutils import escape

from tools.bench.answer import Answer

Points = Sequence[tuple[float, float]]

WIDTH, HEIGHT = 420, 260
LEFT, RIGHT, TOP, BOTTOM = 52, 14, 30, 40
MAX_POINTS = 400
COLOUR = "#1f6feb"


def picture(title: str, answers: Sequence[Answer], warm_up_s: float) -> str:
    """SVG of the requests that were sent after the warm-up and ended."""
    ended = [answer for answer in answers if answer.sent_s >= warm_up_s and answer.ended_s is not None]
    first = [(answer.sent_s, answer.first_s * 1e3) for answer in ended if answer.first_s is not None]
    tpot = [answer.tpot_s * 1e3 for answer in ended if answer.tpot_s is not None]
    gaps = [gap * 1e3 for answer in ended for gap in answer.gaps_s]
    panels = (
        _panel("TTFT", "ms", "% of requests", _distribution([ms for _, ms in first])),
        _panel("TPOT", "ms", "% of requests", _distribution(tpot)),
        _panel("ITL: gaps between events", "ms", "% of gaps", _distribution(gaps)),
        _panel("TTFT over the run", "s since the start", "ms", first, dots=True),
    )
    placed = "".join(
        f'<g transform="translate({at % 2 * WIDTH} {40 + at // 2 * HEIGHT})">{panel}</g>'
        for at, panel in enumerate(panels)
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{2 * WIDTH}" height="{2 * HEIGHT + 40}" '
        'font-family="sans-serif" font-size="11"><rect width="100%" height="100%" fill="white"/>'
        f'<text x="{WIDTH}" y="24" text-anchor="middle" font-size="15">{escape(title)}</text>{placed}</svg>\n'
    )


def _distribution(values: Sequence[float]) -> list[tuple[float, float]]:
    """Each value with the percentage of values up to it."""
    ordered = sorted(values)
    step = max(len(ordered) // MAX_POINTS, 1)
    kept = [*range(0, len(ordered), step), len(ordered) - 1] if ordered else []
    return [(ordered[at], (at + 1) / len(ordered) * 100) for at in kept]


def _panel(title: str, x_label: str, y_label: str, points: Points, dots: bool = False) -> str:
    x_ticks, y_ticks = (_ticks(max((point[at] for point in points), default=1.0)) for at in (0, 1))

    def x(value: float) -> float:
        return LEFT + value / x_ticks[-1] * (WIDTH - LEFT - RIGHT)

    def y(value: float) -> float:
        return HEIGHT - BOTTOM - value / y_ticks[-1] * (HEIGHT - TOP - BOTTOM)

    low, high, right = y(0), y(y_ticks[-1]), x(x_ticks[-1])
    parts = [f'<text x="{(LEFT + right) / 2:g}" y="20" text-anchor="middle" font-size="13">{escape(title)}</text>']
    for tick in x_ticks:
        parts.append(f'<path d="M{x(tick):.1f} {low:.1f}V{high:.1f}" stroke="#ddd"/>')
        parts.append(f'<text x="{x(tick):.1f}" y="{low + 14:.1f}" text-anchor="middle">{tick:,g}</text>')
    for tick in y_ticks:
        parts.append(f'<path d="M{LEFT} {y(tick):.1f}H{right:.1f}" stroke="#ddd"/>')
        parts.append(f'<text x="{LEFT - 5}" y="{y(tick) + 4:.1f}" text-anchor="end">{tick:,g}</text>')
    parts.append(f'<text x="{right:.1f}" y="{HEIGHT - 10}" text-anchor="end">{escape(x_label)}</text>')
    parts.append(f'<text x="{LEFT}" y="{TOP - 5}" text-anchor="start">{escape(y_label)}</text>')
    if dots:
        parts += [f'<circle cx="{x(at):.1f}" cy="{y(value):.1f}" r="2" fill="{COLOUR}"/>' for at, value in points]
    else:
        line = " ".join(f"{x(at):.1f},{y(value):.1f}" for at, value in points)
        parts.append(f'<polyline points="{line}" fill="none" stroke="{COLOUR}" stroke-width="1.5"/>')
    return "".join(parts)


def _ticks(largest: float) -> list[float]:
    """Round numbers from 0 to at least the largest value, in four to eight steps."""
    largest = largest if largest > 0 else 1.0
    magnitude = 10.0 ** math.floor(math.log10(largest))
    step = next(step for step in (magnitude / 5, magnitude / 4, magnitude / 2, magnitude, 2 * magnitude)
                if largest / step <= 8)  # fmt: skip
    return list(itertools.takewhile(lambda tick: tick < largest + step, (step * at for at in itertools.count())))
