"""Numbers as people and models write them, read for comparison."""

from __future__ import annotations

import re
from decimal import Decimal, InvalidOperation

_NUMBER = re.compile(r"(?<![\w.,])[-+]?[$€£¥]?\d(?:[\d.,'\u00a0\u202f]*\d)?")
_GROUPED = {
    ",": re.compile(r"[-+]?\d{1,3}(?:,\d{3})+(?:\.\d+)?"),
    ".": re.compile(r"[-+]?\d{1,3}(?:\.\d{3})+(?:,\d+)?"),
}


def parse(text: str) -> Decimal | None:
    """A number written alone, commas between thousands allowed; None where it is none."""
    written = text.strip().replace("\u2212", "-").translate(dict.fromkeys(map(ord, "$€£¥'\u00a0\u202f")))
    if _GROUPED[","].fullmatch(written):
        written = written.replace(",", "")
    try:
        number = Decimal(written)
    except InvalidOperation:
        return None
    return number if number.is_finite() else None


def last_readings(answer: str, *, dots_group: bool = False) -> set[Decimal]:
    """What the last number of a text may mean. dots_group: also "70.000" as seventy thousand and "1,5" as one and a
    half, as half of the world writes them."""
    found = _NUMBER.findall(answer.replace("\u2212", "-").replace("*", " "))
    if not found:
        return set()
    last = found[-1]
    readings = {parse(last)}
    if dots_group:
        plain = last.lstrip("$€£¥")
        if _GROUPED["."].fullmatch(plain):
            readings.add(parse(plain.replace(".", "").replace(",", ".")))
        elif plain.count(",") == 1 and "." not in plain:
            readings.add(parse(plain.replace(",", ".")))
    return {reading for reading in readings if reading is not None}


def ends_with(answer: str, wanted: Decimal, *, tolerance: Decimal = Decimal(0), dots_group: bool = False) -> bool:
    """Whether the last number of a text is the wanted one, within a tolerance."""
    return any(abs(one - wanted) <= tolerance for one in last_readings(answer, dots_group=dots_group))
