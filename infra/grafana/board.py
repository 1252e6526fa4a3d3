"""The parts of a board: panels with queries, and the variables that choose the data they show.

Grafana's own SDK is not used: it has no queries to PostgreSQL, and its versions (timestamps) cannot be pinned to a
range. Only `render.py` knows Grafana's JSON.
"""

from __future__ import annotations

from typing import Literal

import msgspec

Kind = Literal["timeseries", "stat", "table"]


class Query(msgspec.Struct, frozen=True):
    """A PromQL query and the legend of its lines."""

    expression: str
    legend: str
    quiet: str = ""
    """Why a healthy deployment has no such series; empty if it has one."""


class SqlQuery(msgspec.Struct, frozen=True):
    """SQL for PostgreSQL with Grafana's macros. shape: `time_series` has columns `time` and `metric`, and values."""

    statement: str
    shape: Literal["time_series", "table"] = "time_series"


class Panel(msgspec.Struct, frozen=True, kw_only=True):
    """One chart or table."""

    title: str
    description: str
    """What the panel shows and how to interpret it."""
    unit: str
    """Grafana's id of the unit: s, reqps, percentunit, short, …"""
    queries: tuple[Query | SqlQuery, ...]
    kind: Kind = "timeseries"
    alerts: tuple[str, ...] = ()
    """Alerts on the panel's data, as SUBJECT/NAME; the panel links to docs/runbooks/SUBJECT.md."""
    width: int = 12
    """Columns out of 24."""
    stacked: bool = False


class Variable(msgspec.Struct, frozen=True):
    """A filter that accepts one value, several or all; queries refer to it with a dollar sign.

    query: PromQL's `label_values(metric, label)`, or SQL with columns `__text` and `__value`.
    """

    name: str
    label: str
    query: str
    sql: bool = False


class Board(msgspec.Struct, frozen=True, kw_only=True):
    """A page of panels."""

    name: str
    """The name of the board's file; its uid, by which boards link to each other, is `slipstream-NAME`."""
    title: str
    description: str
    panels: tuple[Panel, ...]
    variables: tuple[Variable, ...] = ()
