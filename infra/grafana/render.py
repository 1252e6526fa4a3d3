"""Renders a board as Grafana's JSON. Data sources are variables of the board, so any Grafana can import it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from infra.grafana.board import Board, Panel, Query, SqlQuery, Variable

SCHEMA_VERSION = 39
"""The schema of Grafana 10.4; later versions read it and upgrade it."""
COLUMNS = 24
HEIGHT = 8
TAG = "slipstream"
PROMETHEUS = {"type": "prometheus", "uid": "${datasource}"}
POSTGRES = {"type": "grafana-postgresql-datasource", "uid": "${database}"}


def text(board: Board) -> str:
    """The content of the board's file."""
    return msgspec.json.format(msgspec.json.encode(dashboard(board))).decode() + "\n"


def dashboard(board: Board) -> dict[str, Any]:
    """Grafana's model of a dashboard."""
    queries = [query for panel in board.panels for query in panel.queries]
    return {
        "uid": f"slipstream-{board.name}",
        "title": board.title,
        "description": board.description,
        "tags": [TAG],
        "schemaVersion": SCHEMA_VERSION,
        "timezone": "utc",
        "editable": True,
        "graphTooltip": 1,
        "refresh": "30s",
        "time": {"from": "now-1h", "to": "now"},
        "links": [{"type": "dashboards", "title": "Slipstream", "tags": [TAG], "asDropdown": True, "keepTime": True}],
        "templating": {"list": [*_sources(queries), *map(_variable, board.variables), _RUNBOOKS]},
        "panels": list(_placed(board.panels)),
    }


_RUNBOOKS = {
    # The folder that panels link to; change it here if the runbooks are elsewhere.
    "name": "runbooks",
    "type": "constant",
    "label": "Runbooks",
    "hide": 2,
    "query": "docs/runbooks",
    "current": {"text": "docs/runbooks", "value": "docs/runbooks"},
}


def _sources(queries: list[Query | SqlQuery]) -> Iterator[dict[str, Any]]:
    if any(isinstance(query, Query) for query in queries):
        yield {"name": "datasource", "type": "datasource", "query": "prometheus", "label": "Prometheus"}
    if any(isinstance(query, SqlQuery) for query in queries):
        yield {"name": "database", "type": "datasource", "query": POSTGRES["type"], "label": "PostgreSQL"}


def _variable(variable: Variable) -> dict[str, Any]:
    query: Any = variable.query if variable.sql else {"query": variable.query, "refId": variable.name, "qryType": 1}
    chosen = {"text": ["All"], "value": ["$__all"]}
    own = {
        "name": variable.name,
        "label": variable.label,
        "type": "query",
        "datasource": POSTGRES if variable.sql else PROMETHEUS,
        "query": query,
        "definition": variable.query,
        "refresh": 2,
        "sort": 1,
        "multi": True,
        "includeAll": True,
        "current": chosen,
    }
    # For "all" in SQL, Grafana inserts every value: an `allValue` would have to work in each query.
    return own if variable.sql else {**own, "allValue": ".*"}


def _placed(panels: tuple[Panel, ...]) -> Iterator[dict[str, Any]]:
    """Panels from left to right, in rows of the same height."""
    x = y = 0
    for number, panel in enumerate(panels, start=1):
        if x + panel.width > COLUMNS:
            x, y = 0, y + HEIGHT
        yield {"id": number, "gridPos": {"x": x, "y": y, "w": panel.width, "h": HEIGHT}, **_panel(panel)}
        x += panel.width


def _panel(panel: Panel) -> dict[str, Any]:
    drawn = {"stacking": {"mode": "normal"}, "fillOpacity": 20} if panel.stacked else {}
    defaults: dict[str, Any] = {"unit": panel.unit, "custom": drawn}
    options: dict[str, Any] = {}
    if panel.kind == "timeseries":
        defaults["min"] = 0
        options = {
            "legend": {"displayMode": "list", "placement": "bottom", "showLegend": True},
            "tooltip": {"mode": "multi", "sort": "desc"},
        }
    elif panel.kind == "stat":
        options = {"reduceOptions": {"calcs": ["lastNotNull"]}, "textMode": "value_and_name"}
    targets = [_target(letter, query) for letter, query in zip("ABCDEFGH", panel.queries, strict=False)]
    return {
        "type": panel.kind,
        "title": panel.title,
        "description": panel.description,
        "datasource": targets[0]["datasource"],
        "fieldConfig": {"defaults": defaults, "overrides": []},
        "options": options,
        "targets": targets,
        "links": [_link(*alert.split("/")) for alert in panel.alerts],
    }


def _target(letter: str, query: Query | SqlQuery) -> dict[str, Any]:
    if isinstance(query, Query):
        return {"refId": letter, "datasource": PROMETHEUS, "expr": query.expression, "legendFormat": query.legend}
    return {
        "refId": letter,
        "datasource": POSTGRES,
        "editorMode": "code",
        "rawQuery": True,
        "rawSql": query.statement,
        "format": query.shape,
    }


def _link(subject: str, alert: str) -> dict[str, Any]:
    return {"title": alert, "url": f"${{runbooks}}/{subject}.md#{alert.lower()}", "targetBlank": True}
