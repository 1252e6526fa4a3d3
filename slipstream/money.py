"""Converts money between text, `12.50`, and the internal unit: whole millionths of the deployment's currency."""

from __future__ import annotations

from decimal import Decimal, InvalidOperation

import click

MICRO = 1_000_000
PLACES = 6
CENTS = Decimal("0.01")


class Money(click.ParamType[int]):
    """An option in units of the currency; its value is in millionths."""

    name = "amount"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> int:
        if isinstance(value, int):
            return value
        try:
            micro = Decimal(str(value)) * MICRO
        except InvalidOperation:
            micro = Decimal("nan")
        if not micro.is_finite() or micro < 0:
            self.fail(f"{value!r} is not an amount; write it in units of the currency, such as 12.50", param, ctx)
        if micro != int(micro):
            self.fail(f"{value!r} has more than {PLACES} decimal places; amounts are kept in millionths", param, ctx)
        return int(micro)


def told(micro: int, currency: str) -> str:
    """An amount as text such as `12.50 EUR`."""
    return f"{amount(micro)} {currency}"


def amount(micro: int) -> str:
    """An amount as text such as `12.50`, with at least two decimal places and all significant ones."""
    whole = (Decimal(micro) / MICRO).normalize()
    exact = whole if whole.as_tuple().exponent < -2 else whole.quantize(CENTS)  # type: ignore[operator]
    return f"{exact:,f}"
