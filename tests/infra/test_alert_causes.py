"""Every alert has a cause that is made under the eyes of a real Prometheus, in tests/e2e/failures."""

from __future__ import annotations

from tests.e2e.failures.test_alerts import CAUSES, ELSEWHERE
from tests.prometheus import RULES, rules_in


def test_every_alert_has_a_cause() -> None:
    alerts = {rule["alert"] for file in RULES for rule in rules_in(file) if "alert" in rule}
    listed = [alert for made in CAUSES.values() for alert in made] + [*ELSEWHERE]
    assert sorted(listed) == sorted(alerts)
