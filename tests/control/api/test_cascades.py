"""A cascade may answer customers once a comparison of what it is now has passed, and no longer than that is so."""

from __future__ import annotations

from uuid import uuid4

import pytest

from tests.control.api.examples import SPARE_PARTS, passed_comparison, things_of
from tests.control.api.people import Client, People


@pytest.fixture
async def operator(people: People) -> Client:
    await things_of(people, "operator", fresh=True, only=SPARE_PARTS)
    return await people.operator()


async def refusal(client: Client, comparison: object, model: str = "spare") -> tuple[int, str]:
    answer = await client.ask("PUT", f"/cascades/{model}", {"comparison": str(comparison)})
    return answer.status, answer.body["error"]["message"]


async def test_a_comparison_that_passed_lets_it_answer(operator: Client, people: People) -> None:
    comparison = await passed_comparison(people)
    answer = await operator.ask("PUT", "/cascades/spare", {"comparison": str(comparison)})
    assert answer.status == 200, answer
    (difference,) = answer.body["differences"]
    assert difference.startswith("model spare: cascade")
    approval = (await operator.get("/models/spare"))["cascade"]["approval"]
    assert (approval["comparison"], approval["worst_difference"]) == (str(comparison), -0.01)


async def test_what_is_no_proof_of_this_cascade_is_refused(operator: Client, people: People) -> None:
    assert (await refusal(operator, uuid4()))[0] == 409, "it has no cascade"
    comparison = await passed_comparison(people)
    assert (await refusal(operator, uuid4()))[0] == 404
    change = "UPDATE evals.comparisons SET {} WHERE id = $1"
    await people.database.execute(change.format("model = 'wide'"), comparison)
    status, said = await refusal(operator, comparison)
    assert (status, "compared 'wide' on 'one' and 'cascade-pool'" in said) == (409, True)
    await people.database.execute(change.format("model = 'spare', decision = 'inconclusive'"), comparison)
    status, said = await refusal(operator, comparison)
    assert (status, "has not passed; its status is inconclusive" in said) == (409, True)
    lax = await passed_comparison(people, margin=0.05)
    status, said = await refusal(operator, lax)
    assert (status, "passed by a margin of 0.05; the cascade's quality_margin is 0.02" in said) == (409, True)
    by_slice = await passed_comparison(people)
    await people.database.execute(change.format("""rule = '{"margins": {"facts": 0.03}}'"""), by_slice)
    status, said = await refusal(operator, by_slice)
    assert (status, "passed by a margin of 0.03; the cascade's quality_margin is 0.02" in said) == (409, True)


async def test_a_comparison_of_what_was_changed_since_is_refused(operator: Client, people: People) -> None:
    comparison = await passed_comparison(people)
    model = await operator.get("/models/spare")
    changed = {**model, "cascade": {**model["cascade"], "min_confidence": 0.1}}
    assert (await operator.ask("PUT", "/models/spare", changed)).status == 200
    status, said = await refusal(operator, comparison)
    assert (status, "has changed since" in said) == (409, True)
    assert (await operator.ask("PUT", "/models/spare", model)).status == 200, "and back"
    assert (await refusal(operator, comparison))[0] == 409, "what was answered in between may be of the other"


async def test_an_approval_is_not_written_by_hand(operator: Client, people: People) -> None:
    comparison = await passed_comparison(people)
    await operator.ask("PUT", "/cascades/spare", {"comparison": str(comparison)})
    model = await operator.get("/models/spare")
    assert (await operator.ask("PUT", "/models/spare", model)).status == 200, "what was read may be put back"
    forged = {**model, "cascade": {**model["cascade"], "approval": {"comparison": "x", "measured": "y"}}}
    answer = await operator.ask("PUT", "/models/spare", forged)
    assert (answer.status, answer.body["error"]["param"]) == (400, "cascade.approval")
