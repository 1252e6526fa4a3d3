"""What cards cost by the hour where nobody is named: one published list for all of them, to be replaced by your own
price."""

from __future__ import annotations

HOURS_PER_MONTH = 730
SOURCE = "akash.network/pricing/gpus, prices to rent from, read 2026-09-20"
PUBLISHED = {"A100": 1.71, "H100": 2.71, "H200": 4.45, "B200": 5.00}
"""US dollars for one card and hour. Others ask for other prices for the same card: of an H100, 2.69 to 12.29 in
November 2026. Lambda's list of 2026-09-20 says 2.79 for A100, 3.99 for H100 and 6.69 for B200."""
