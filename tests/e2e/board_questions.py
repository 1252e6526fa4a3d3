"""What boards ask Prometheus, as Grafana would."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

from infra.grafana.board import Query
from infra.grafana.boards import BOARDS
from tests.prometheus import RULES, metrics_in, rules_in


class Question(NamedTuple):
    """One query of a panel. alerts: that the panel leads to."""

    board: str
    title: str
    query: Query
    alerts: tuple[str, ...]

    @property
    def expression(self) -> str:
        """With everything chosen, and a window that a test's load fills."""
        return re.sub(r"\$\w+", ".*", self.query.expression.replace("$__rate_interval", "30s"))


QUESTIONS = [
    Question(board.name, panel.title, query, tuple(alert.rpartition("/")[2] for alert in panel.alerts))
    for board in BOARDS
    for panel in board.panels
    for query in panel.queries
    if isinstance(query, Query)
]
_RULES = [rule for file in RULES for rule in rules_in(file)]
_RECORDED = {rule["record"]: rule["expr"] for rule in _RULES if "record" in rule}
_ALERTS = {rule["alert"]: rule["expr"] for rule in _RULES if "alert" in rule}


def has_data(found: list[dict[str, Any]]) -> bool:
    """There is a number; NaN is what a quantile of nothing is."""
    return any(not math.isnan(float(sample["value"][1])) for sample in found)


def loud_while(alert: str) -> Iterator[Question]:
    """What is quiet where all is well, and not while this alert fires: it is about what the alert reads."""
    read = metrics_in(_ALERTS[alert])
    for recorded in read & set(_RECORDED):
        read |= metrics_in(_RECORDED[recorded])
    for each in QUESTIONS:
        if each.query.quiet and alert in each.alerts and metrics_in(each.expression) <= read:
            yield each
