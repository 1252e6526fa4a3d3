"""A release whose budget of evidence is spent is resumed by a larger one, or not at all."""

from __future__ import annotations

from tests.control.api.examples import things_of
from tests.control.api.people import People

VERDICT = '{"decision": "inconclusive", "reason": "the budget of 100 sessions is spent"}'


async def spent_release(people: People) -> str:
    """A held release whose last verdict says that its budget is spent."""
    release = str((await things_of(people, "operator", fresh=True, only=["release_id"]))["release_id"])
    database = people.database
    await database.execute("UPDATE gateway.releases SET state = 'held' WHERE id = $1", release)
    await database.execute("UPDATE gateway.release_steps SET verdict = $2 WHERE release_id = $1", release, VERDICT)
    return release


async def test_a_spent_budget_is_resumed_by_a_larger_one_alone(people: People) -> None:
    operator = await people.operator()
    release = await spent_release(people)
    path = f"/releases/{release}/resume"
    refused = await operator.ask("POST", path, {"reason": "on"})
    assert (refused.status, refused.body["error"]["param"]) == (409, "more_units")
    assert "the budget of 100 sessions is spent" in refused.body["error"]["message"]
    resumed = await operator.ask("POST", path, {"reason": "on", "more_units": 500})
    assert (resumed.status, resumed.body["more_units"]) == (200, 500), resumed
    step = (await operator.get(f"/releases/{release}/steps"))["data"][0]
    assert (step["event"], step["more_units"]) == ("resume", 500)
    audited = "SELECT after->>'more_units' FROM gateway.audit_log WHERE action = 'release.resume' AND subject_id = $1"
    assert await people.database.fetchval(audited, release) == "500"


async def test_a_granted_budget_is_not_asked_for_again_after_a_hold(people: People) -> None:
    """No look has judged by it yet, so that the last verdict is still the one of the spent budget."""
    operator = await people.operator()
    release = await spent_release(people)
    path = f"/releases/{release}"
    assert (await operator.ask("POST", f"{path}/resume", {"reason": "on", "more_units": 500})).status == 200
    assert (await operator.ask("POST", f"{path}/hold", {"reason": "lunch"})).status == 200
    resumed = await operator.ask("POST", f"{path}/resume", {"reason": "on"})
    assert (resumed.status, resumed.body.get("state")) == (200, "running"), resumed
