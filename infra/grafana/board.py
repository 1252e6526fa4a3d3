"""What a board is made of: panels of queries, and the variables that choose what they show.

Not Grafana's own SDK: it has no queries to PostgreSQL, and its versions (a time stamp as epoch) cannot be given as a
range. `render.py` alone knows Grafana's JSON.
"""

from __future__ import annotations

from typing import Literal

import msgspec

Kind = Literal["timeseries", "stat", "table"]


class Query(msgspec.Struct, frozen=True):
    """PromQL, and how a line of it is called."""

    expression: str
    legend: str
    quiet: str = ""
    """Why a deployment in which all is well has no such series; empty: it has."""


class SqlQuery(msgspec.Struct, frozen=True):
    """SQL for PostgreSQL with Grafana's macros. shape: `time_series` has a column `time`, one `metric`, and values."""

    statement: str
    shape: Literal["time_series", "table"] = "time_series"


class Panel(msgspec.Struct, frozen=True, kw_only=True):
    """One picture."""

    title: str
    description: str
    """What it shows, and what to make of it."""
    unit: str
    """Grafana's id of it: s, reqps, percentunit, short, …"""
    queries: tuple[Query | SqlQuery, ...]
    kind: Kind = "timeseries"
    alerts: tuple[str, ...] = ()
    """Alerts about what is seen here, as SUBJECT/NAME; docs/runbooks/SUBJECT.md is linked."""
    width: int = 12
    """Of 24."""
    stacked: bool = False


class Variable(msgspec.Struct, frozen=True):
    """Something to choose by, several at once or all; queries name it with a dollar.

    query: PromQL's `label_values(metric, label)`, or SQL with columns `__text` and `__value`.
    """

    name: str
    label: str
    query: str
    sql: bool = False


class Board(msgspec.Struct, frozen=True, kw_only=True):
    """A page of panels."""

    name: str
    """Of its file; `slipstream-NAME` is its uid, by which boards link to each other."""
    title: str
    description: str
    panels: tuple[Panel, ...]
    variables: tuple[Variable, ...] = ()
