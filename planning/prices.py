"""What cards cost by the hour where nobody is named: one published list for all of them, to be replaced by your own
price."""

from __future__ import annotations

import msgspec

HOURS_PER_MONTH = 730
SOURCE = "akash.network/pricing/gpus, prices to rent from, read 2026-09-20"


class CardPrice(msgspec.Struct, frozen=True):
    """US dollars for one card and hour."""

    per_hour: float
    source: str


PUBLISHED = {
    "A100": CardPrice(1.71, SOURCE),
    "H100": CardPrice(2.71, SOURCE),
    "H200": CardPrice(4.45, SOURCE),
    "B200": CardPrice(5.00, SOURCE),
}
"""Others ask for other prices for the same card: of an H100, 2.69 to 12.29 dollars in November 2026. Lambda's list of
2026-09-20 says 2.79 for A100, 3.99 for H100 and 6.69 for B200."""
