"""An option whose value is a finite number."""

from __future__ import annotations

import math

import click


class Finite(click.FloatRange):
    """A finite number in a range; click finds `nan` in every range."""

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """The number; fails the option if it is not finite."""
        number: float = super().convert(value, param, ctx)  # type: ignore[arg-type]  # click passes text
        if not math.isfinite(number):
            self.fail(f"{value!r} is not a number", param, ctx)
        return number
