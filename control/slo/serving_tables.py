"""Counts and latency histograms of the whole deployment, by minute and by hour. They have no organizations, so a month
of ten million requests is about ten thousand rows."""

from __future__ import annotations

from sqlalchemy import ARRAY, BigInteger, Column, DateTime, SmallInteger, Table, Text

from control.slo.tables import COUNTS
from storage.tables.core import metadata

MEASURES = {"ttft": "ttft_ms", "tpot": "tpot_ms", "gap": "itl_max_ms"}
"""Measures of requests, with the column of `gateway.request_traces`. A request without a value is in no histogram."""


def _counts(name: str) -> Table:
    return Table(
        name,
        metadata,
        Column("at", DateTime(timezone=True), primary_key=True),
        *(Column(key, Text, primary_key=True) for key in ("tier", "length", "model", "pool", "side")),
        *(Column(count, BigInteger, nullable=False) for count in COUNTS),
    )


def _latencies(name: str) -> Table:
    return Table(
        name,
        metadata,
        Column("at", DateTime(timezone=True), primary_key=True),
        *(Column(key, Text, primary_key=True) for key in ("tier", "model", "pool", "measure")),
        # A histogram: storage/latency_histogram.py.
        Column("buckets", ARRAY(SmallInteger), nullable=False),
        Column("counts", ARRAY(BigInteger), nullable=False),
    )


# By the minute or hour (UTC) in which requests arrived; model and pool are empty if there is none.
serving_minutes, serving_hours = _counts("serving_minutes"), _counts("serving_hours")
latency_minutes, latency_hours = _latencies("latency_minutes"), _latencies("latency_hours")
