"""Masks a text's dates and times, or all its numbers and identifiers. Equal digests of the rest show that only these
changed.

Every pattern takes time in proportion to the text's length, whatever its content: repetitions are possessive.
"""

from __future__ import annotations

import re

MASKED_CHARACTERS = 1_024
"""Characters that are masked at each end of a text; the middle is compared unmasked."""
MASK = "#"

_MONTH = r"(?:jan|feb|mar|apr|may|june?|july?|aug|sept?|oct|nov|dec)(?:[a-z]{2,6}+)?\.?"
_DAY = r"(?:mon|tue|tues|wed|wednes|thu|thurs|fri|sat|satur|sun)(?:day)?\.?,?"
_ZONE = r"(?:\s?(?:utc|gmt|z|[ap]\.?m\.?)(?!\w)|[+-]\d\d:?\d\d)?"
_TIME = rf"\d{{1,2}}:\d\d(?::\d\d(?:[.,]\d{{1,9}}+)?)?{_ZONE}"
_DATES = re.compile(
    rf"""(?<![\w])(?:
        \d{{4}}[-/.]\d{{1,2}}[-/.]\d{{1,2}}(?:[t\s]{_TIME})?     # 2026-11-22, 2026/11/22 10:31
      | \d{{1,2}}[-/.]\d{{1,2}}[-/.]\d{{2,4}}                    # 22.11.2026
      | {_TIME}                                                  # 10:31, 4:05 pm
      | (?:{_DAY}\s{{1,2}}+)?{_MONTH}\s\d{{1,2}}(?:st|nd|rd|th)?(?:,?\s\d{{4}})?
      | (?:{_DAY}\s{{1,2}}+)?\d{{1,2}}(?:st|nd|rd|th)?\s(?:of\s)?{_MONTH}(?:,?\s\d{{4}})?
      | (?:mon|tues|wednes|thurs|fri|satur|sun)day
      | 1[5-9]\d{{8}}(?:\d{{3}})?                                # seconds or milliseconds since 1970
    )(?!\w)""",
    re.IGNORECASE | re.VERBOSE,
)
# A word with a digit in it: a number, a UUID, a hexadecimal digest, `user-17`.
_VALUES = re.compile(r"(?<![\w-])(?:[^\W\d]|-)*+\d[\w-]*+")


def undated(text: str) -> str:
    """The text with dates, weekdays and times of day masked, at both ends of a long text."""
    return _at_both_ends(text, _DATES)


def unvalued(undated_text: str) -> str:
    """The text with every word that contains a digit masked as well."""
    return _at_both_ends(undated_text, _VALUES)


def _at_both_ends(text: str, pattern: re.Pattern[str]) -> str:
    if len(text) <= 2 * MASKED_CHARACTERS:
        return pattern.sub(MASK, text)
    head, rest, tail = text[:MASKED_CHARACTERS], text[MASKED_CHARACTERS:-MASKED_CHARACTERS], text[-MASKED_CHARACTERS:]
    return pattern.sub(MASK, head) + rest + pattern.sub(MASK, tail)
