"""Default prices of GPUs per hour, all from one published list; replace them with your own price."""

from __future__ import annotations

HOURS_PER_MONTH = 730
SOURCE = "akash.network/pricing/gpus, prices to rent from, read 2026-09-20"
PUBLISHED = {"A100": 1.71, "H100": 2.71, "H200": 4.45, "B200": 5.00}
"""US dollars per GPU and hour. Prices for the same GPU differ between providers: for an H100, from 2.69 to 12.29 in
November 2026. Lambda's list of 2026-09-20 has 2.79 for A100, 3.99 for H100 and 6.69 for B200."""
