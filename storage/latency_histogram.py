"""Histograms of latencies in rows: two arrays of the same length, with the buckets in order and the number of values in
each.

Bucket b holds milliseconds above BASE^(b-1) and up to BASE^b: DDSketch's layout (Masson et al., 2019). Histograms are
added bucket by bucket, and a percentile of the sum is as accurate as that of a part.
"""

from __future__ import annotations

BASE = 1.05
WITHIN = (BASE - 1) / (BASE + 1)
"""Largest relative distance of a value from the middle of its bucket."""
MIN_MS = 0.01
"""Smaller values count as this one."""


def middle_ms(bucket: int) -> float:
    """The value that represents a bucket, in milliseconds."""
    return float(2 * BASE**bucket / (1 + BASE))


def bucket_sql(value_ms: str) -> str:
    """An expression's bucket, in SQL. value_ms: an expression with a finite value."""
    return f"ceil(ln(greatest({value_ms}, {MIN_MS})) / ln({BASE}::float8))::smallint"


def middle_sql(bucket: str) -> str:
    """`middle_ms` of an expression, in SQL."""
    return f"(2 * power({BASE}::float8, {bucket}) / {1 + BASE}::float8)"
