"""Quantities as people write them: durations, sizes, Roman numerals and clock times."""

from __future__ import annotations

import re

SECONDS = {"d": 86_400, "h": 3_600, "m": 60, "s": 1}
SIZES = ("B", "KiB", "MiB", "GiB", "TiB")
NUMERALS = (
    (1000, "M"), (900, "CM"), (500, "D"), (400, "CD"), (100, "C"), (90, "XC"),
    (50, "L"), (40, "XL"), (10, "X"), (9, "IX"), (5, "V"), (4, "IV"), (1, "I"),
)  # fmt: skip


def parse_duration(text: str) -> int:
    """Seconds of a duration such as `1h30m`. Raises ValueError for any other text."""
    parts = re.findall(r"(\d+)([dhms])", text)
    if not parts or "".join(number + unit for number, unit in parts) != text:
        raise ValueError(f"{text!r} is no duration")
    return sum(int(number) * SECONDS[unit] for number, unit in parts)


def format_duration(seconds: int) -> str:
    """The shortest text that `parse_duration` reads back."""
    if seconds <= 0:
        return "0s"
    written = []
    for unit, size in SECONDS.items():
        number, seconds = divmod(seconds, size)
        if number:
            written.append(f"{number}{unit}")
    return "".join(written)


def format_size(size_bytes: int) -> str:
    """With a unit that leaves less than 1,024 of it, and one digit behind the point."""
    size = float(size_bytes)
    for unit in SIZES[:-1]:
        if size < 1024:
            return f"{size:.1f} {unit}" if unit != "B" else f"{size_bytes} B"
        size /= 1024
    return f"{size:.1f} {SIZES[-1]}"


def parse_size(text: str) -> int:
    """Bytes of a size such as `2.5 MiB`. Raises ValueError for an unknown unit."""
    number, _, unit = text.strip().partition(" ")
    power = SIZES.index(unit or "B")
    return round(float(number) * 1024.0**power)


def to_roman(number: int) -> str:
    """The numeral of a number from 1 on."""
    written = ""
    for value, letters in NUMERALS:
        while number >= value:
            written += letters
            number -= value
    return written


def from_roman(numeral: str) -> int:
    """The number of a numeral."""
    values = {letters: value for value, letters in NUMERALS if len(letters) == 1}
    total = 0
    for at, letter in enumerate(numeral):
        value = values[letter]
        following = values[numeral[at + 1]] if at + 1 < len(numeral) else 0
        total += -value if value < following else value
    return total


def minutes_of(clock: str) -> int:
    """Minutes since midnight of a time such as `9:05 pm` or `21:05`. Raises ValueError for none."""
    time, _, half = clock.strip().lower().partition(" ")
    hours, minutes = (int(part) for part in time.split(":"))
    if half:
        if not 1 <= hours <= 12 or half not in ("am", "pm"):
            raise ValueError(f"{clock!r} is no time")
        hours = hours % 12 + (12 if half == "pm" else 0)
    if not 0 <= hours < 24 or not 0 <= minutes < 60:
        raise ValueError(f"{clock!r} is no time")
    return hours * 60 + minutes
