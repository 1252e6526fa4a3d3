"""Draws replays together: the share of keys with at most a number of tokens prefilled again."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping

from benchmarks.keystroke_sessions.figures import EDGES, Figures

WIDTH, HEIGHT = 760, 380
LEFT, RIGHT, TOP, BOTTOM = 64, 190, 48, 56
COLOURS = ("#0969da", "#bc4c00", "#8250df", "#1a7f37", "#9a6700", "#cf222e", "#57606a", "#bf3989")
MARKED = (1, 4, 16, 64, 300, 1_000, 4_000)
"""The numbers of tokens that the axis labels."""


def draw(replays: Mapping[str, Figures]) -> str:
    """An SVG with a line for each replay, by name; those without a warm key are left out."""
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="system-ui, sans-serif"'
        ' font-size="13">',
        f'  <rect width="{WIDTH}" height="{HEIGHT}" fill="#ffffff"/>',
        f'  <text x="{LEFT}" y="26" font-size="15" font-weight="600" fill="#1f2328">'
        "Keys with at most so many tokens of their prompt computed again</text>",
    ]
    for tokens in MARKED:
        lines += [
            f'  <line x1="{_x(tokens):.1f}" y1="{TOP}" x2="{_x(tokens):.1f}" y2="{HEIGHT - BOTTOM}" stroke="#d8dee4"/>',
            f'  <text x="{_x(tokens):.1f}" y="{HEIGHT - BOTTOM + 20}" text-anchor="middle" fill="#57606a">'
            f"{tokens:,}</text>",
        ]
    for part in (0, 25, 50, 75, 100):
        at = _y(part / 100)
        lines += [
            f'  <line x1="{LEFT}" y1="{at:.1f}" x2="{WIDTH - RIGHT}" y2="{at:.1f}" stroke="#d8dee4"/>',
            f'  <text x="{LEFT - 8}" y="{at + 4:.1f}" text-anchor="end" fill="#57606a">{part} %</text>',
        ]
    lines.append(f'  <text x="{LEFT}" y="{HEIGHT - 14}" fill="#57606a">tokens computed again, of a warm key</text>')
    shown = {name: found for name, found in replays.items() if sum(found.histogram)}
    for number, (name, found) in enumerate(shown.items()):
        colour = COLOURS[number % len(COLOURS)]
        parts = [count / sum(found.histogram) for count in itertools.accumulate(found.histogram)]
        points = " ".join(f"{_x(edge):.1f},{_y(part):.1f}" for edge, part in zip(EDGES, parts, strict=False))
        label = TOP + 16 + 22 * number
        lines += [
            f'  <polyline points="{points}" fill="none" stroke="{colour}" stroke-width="2.5"/>',
            f'  <line x1="{WIDTH - RIGHT + 14}" y1="{label}" x2="{WIDTH - RIGHT + 34}" y2="{label}" stroke="{colour}"'
            ' stroke-width="2.5"/>',
            f'  <text x="{WIDTH - RIGHT + 40}" y="{label + 4}" fill="#1f2328">{name}</text>',
        ]
    return "\n".join([*lines, "</svg>", ""])


def _x(tokens: float) -> float:
    return LEFT + (WIDTH - LEFT - RIGHT) * math.log(tokens) / math.log(EDGES[-1])


def _y(part: float) -> float:
    return HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * part
