"""Draws the power of a gate: the share of equal candidates that pass, by items."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

WIDTH, HEIGHT = 760, 380
LEFT, RIGHT, TOP, BOTTOM = 64, 190, 48, 56
COLOURS = ("#0969da", "#bc4c00", "#8250df", "#1a7f37", "#9a6700", "#cf222e")
MARKED = (50, 100, 200, 400, 800, 1_600, 3_200)
"""The numbers of items that the axis labels."""


def draw(title: str, curves: Mapping[str, Sequence[tuple[int, float]]]) -> str:
    """An SVG with a line for each curve. curves: (items, share) points, by name."""
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="system-ui, sans-serif"'
        ' font-size="13">',
        f'  <rect width="{WIDTH}" height="{HEIGHT}" fill="#ffffff"/>',
        f'  <text x="{LEFT}" y="26" font-size="15" font-weight="600" fill="#1f2328">{title}</text>',
    ]
    for items in MARKED:
        at = _x(items)
        lines += [
            f'  <line x1="{at:.1f}" y1="{TOP}" x2="{at:.1f}" y2="{HEIGHT - BOTTOM}" stroke="#d8dee4"/>',
            f'  <text x="{at:.1f}" y="{HEIGHT - BOTTOM + 20}" text-anchor="middle" fill="#57606a">{items:,}</text>',
        ]
    for part in (0, 20, 40, 60, 80, 100):
        at = _y(part / 100)
        lines += [
            f'  <line x1="{LEFT}" y1="{at:.1f}" x2="{WIDTH - RIGHT}" y2="{at:.1f}" stroke="#d8dee4"/>',
            f'  <text x="{LEFT - 8}" y="{at + 4:.1f}" text-anchor="end" fill="#57606a">{part} %</text>',
        ]
    lines.append(f'  <text x="{LEFT}" y="{HEIGHT - 14}" fill="#57606a">items of the slice at most</text>')
    for number, (name, curve) in enumerate(curves.items()):
        colour = COLOURS[number % len(COLOURS)]
        points = " ".join(f"{_x(items):.1f},{_y(share):.1f}" for items, share in curve)
        label = TOP + 16 + 22 * number
        lines += [
            f'  <polyline points="{points}" fill="none" stroke="{colour}" stroke-width="2.5"/>',
            f'  <line x1="{WIDTH - RIGHT + 14}" y1="{label}" x2="{WIDTH - RIGHT + 34}" y2="{label}" stroke="{colour}"'
            ' stroke-width="2.5"/>',
            f'  <text x="{WIDTH - RIGHT + 40}" y="{label + 4}" fill="#1f2328">{name}</text>',
        ]
    return "\n".join([*lines, "</svg>", ""])


def _x(items: float) -> float:
    span = math.log(MARKED[-1] / MARKED[0])
    return LEFT + (WIDTH - LEFT - RIGHT) * math.log(items / MARKED[0]) / span


def _y(share: float) -> float:
    return HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * share
