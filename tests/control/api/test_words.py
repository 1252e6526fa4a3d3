"""Refusals speak of what people write: patterns, moments and months have words and an example; a price may come before
its model, and says so."""

from __future__ import annotations

from uuid import UUID

import pytest

from control.api.schemas import NO_CONTROL_CHARACTERS
from tests.control.api.people import People

MOMENT = "it must be a timestamp with a UTC offset, such as 2026-11-22T09:30:00Z."


@pytest.mark.parametrize(
    ("path", "body", "param", "words"),
    [
        ("members", {"email": "ada", "name": "Ada", "role": "viewer"}, "email", "an e-mail address such as ada@"),
        ("projects", {"name": "a\nb"}, "name", "it must be text without control characters."),
        ("webhooks", {"url": "hooks.acme.example"}, "url", "a URL such as https://hooks.acme.example/slipstream"),
    ],
)
async def test_a_pattern_is_told_in_words(
    people: People, path: str, body: dict[str, object], param: str, words: str
) -> None:
    operator = await people.operator()
    answer = await operator.ask("POST", f"/organizations/{UUID(int=0)}/{path}", body)
    error = answer.body["error"]
    assert (answer.status, error["param"]) == (400, param)
    assert error["message"].startswith(f"Invalid value for '{param}': it must be ")
    assert words in error["message"]
    assert NO_CONTROL_CHARACTERS not in error["message"]


@pytest.mark.parametrize("value", ["tomorrow", "2026-11-22T09:30:00", 17, [1]])
async def test_a_moment_is_told_by_example(people: People, value: object) -> None:
    body = {"model": "m", "input_micro": 1, "output_micro": 1, "valid_from": value}
    answer = await (await people.operator()).ask("POST", "/prices", body)
    assert (answer.status, answer.body["error"]["message"]) == (400, f"Invalid value for 'valid_from': {MOMENT}")


async def test_a_parameter_there_is_not_is_answered_with_those_there_are(people: People) -> None:
    operator = await people.operator()
    answer = await operator.ask("GET", f"/organizations/{UUID(int=0)}/requests?decision=refused")
    message = answer.body["error"]["message"]
    assert (answer.status, answer.body["error"]["param"]) == (400, "decision")
    assert message.startswith(
        "Unknown parameter: 'decision' is not a parameter of this call; parameters: limit, cursor, "
    )
    assert "error_code" in message


async def test_a_price_of_a_model_that_is_not_served_is_made_and_warned_of(people: People) -> None:
    operator = await people.operator()
    served = (await operator.ask("GET", "/me")).status
    assert served == 200
    rates = {"input_micro": 1, "output_micro": 1}
    answer = await operator.ask("POST", "/prices", {"model": "nobody's", **rates})
    assert (answer.status, answer.body["served"]) == (201, False)
    assert answer.body["warning"].startswith("""This deployment serves no model "nobody's" (it serves: """)
    assert answer.body["warning"].endswith("The price applies once a model of this name is served.")
