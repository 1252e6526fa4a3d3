"""A real Prometheus scrapes what `up` lists: boards' questions are answered, rules evaluated, and no alert fires."""

from __future__ import annotations

import contextlib
import itertools
import re
from collections.abc import AsyncIterator
from typing import Any

import openai
import pytest

from infra.grafana.boards import BOARDS
from infra.local.folders import DataFolder
from tests.deployment import Deployment
from tests.e2e.board_questions import QUESTIONS, has_data
from tests.prometheus import RULES, Prometheus, metrics_in, prometheus, rules_in
from tests.waiting import eventually

LINES = "".join(f"value_{number} = {number}\n" for number in range(60))
"""Enough blocks for an engine to keep."""
SILENT = {
    # what a deployment has only once something has happened that does not happen here
    "slipstream_client_stall_seconds",  # nobody stopped reading
    "slipstream_eval_night_slice_failed",  # no night of evals found a slice worse
    "slipstream_release_blind_seconds",  # nothing was released
    "slipstream_release_ended_timestamp_seconds",
    "slipstream_release_stage_began_timestamp_seconds",
}
CAUSED = {"no request was refused", "no limit was reached", "nobody left"}
"""What would be quiet, had customers not made its cause here."""


@pytest.fixture(scope="module")
async def watched(embedded: Deployment) -> AsyncIterator[Prometheus]:
    """What scrapes the deployment with the shipped models."""
    async with prometheus(DataFolder(embedded.data).prometheus_targets) as running:
        yield running


@pytest.fixture(scope="module")
async def customer(embedded: Deployment) -> AsyncIterator[openai.AsyncOpenAI]:
    """The OpenAI SDK with a key that has a limit, for which gateways reserve."""
    key = await embedded.make_key("--organization", "watched", "--requests-per-minute", "100000")
    async with openai.AsyncOpenAI(base_url=f"{embedded.url}/v1", api_key=key, max_retries=0) as made:
        yield made


@pytest.fixture(scope="module")
async def limited(embedded: Deployment) -> AsyncIterator[openai.AsyncOpenAI]:
    """With a key that may ask once a minute."""
    key = await embedded.make_key("--organization", "watched", "--requests-per-minute", "1")
    async with openai.AsyncOpenAI(base_url=f"{embedded.url}/v1", api_key=key, max_retries=0) as made:
        yield made


async def misuse(client: openai.AsyncOpenAI, limited: openai.AsyncOpenAI) -> None:
    """What customers also do: leave in the middle of an answer, ask more than they may, and for what there is not."""
    question: list[Any] = [{"role": "user", "content": "Tell me a long story."}]
    stream = await client.chat.completions.create(model="slipstream-chat", messages=question, stream=True)
    async for _ in stream:
        break
    await stream.close()
    for _ in range(2):
        with contextlib.suppress(openai.RateLimitError):
            await limited.completions.create(model="slipstream-code", prompt="x", max_tokens=1)
    with pytest.raises(openai.BadRequestError):
        await client.completions.create(model="slipstream-code", prompt="x", max_tokens=10_000_000)


async def use(client: openai.AsyncOpenAI, number: int) -> None:
    """What customers do: chat, and type in a file."""
    question: list[Any] = [{"role": "user", "content": f"What is {number} and one?"}]
    stream = await client.chat.completions.create(model="slipstream-chat", messages=question, max_tokens=8, stream=True)
    async for _ in stream:
        pass
    for line in ("value", "value = "):
        await client.completions.create(
            model="slipstream-code", prompt=f"# file {number}\n{LINES}{line}", suffix="\n", max_tokens=4
        )


async def test_every_board_shows_data_and_every_rule_is_evaluated(
    watched: Prometheus, customer: openai.AsyncOpenAI, limited: openai.AsyncOpenAI
) -> None:
    assert {each.query.quiet for each in QUESTIONS} > CAUSED
    loud = [each for each in QUESTIONS if not each.query.quiet or each.query.quiet in CAUSED]
    unanswered: list[Any] = [(f"{each.board}: {each.title}", each.expression) for each in loud]
    recorded = {rule["record"] for file in RULES for rule in rules_in(file) if "record" in rule}
    read = {name for file in RULES for rule in rules_in(file) for name in metrics_in(rule["expr"])}
    unanswered += [(name, f'{{__name__=~"{name}(_bucket)?"}}') for name in sorted((recorded | read) - SILENT)]
    rounds = itertools.count()

    async def all_answered() -> bool:
        await use(customer, next(rounds))
        await misuse(customer, limited)
        unanswered[:] = [one for one in unanswered if not has_data(await watched.query(one[1]))]
        return not unanswered

    try:
        await eventually(all_answered)
    except AssertionError:
        pytest.fail("no data: " + "\n".join(map(str, unanswered)))
    for each in QUESTIONS:
        await watched.query(each.expression)  # quiet ones too are questions Prometheus understands
    assert set((await watched.targets()).values()) == {"up"}
    assert {(rule["name"], rule["health"], rule.get("lastError")) for rule in await watched.rules()} == {
        (rule.get("alert") or rule["record"], "ok", None) for file in RULES for rule in rules_in(file)
    }
    firing = [alert["labels"] for alert in await watched.firing()]
    # what is promised by default is more than a busy processor keeps
    assert [labels for labels in firing if not labels["alertname"].startswith("ErrorBudget")] == []


async def test_every_variable_has_something_to_choose(watched: Prometheus, customer: openai.AsyncOpenAI) -> None:
    asked = {variable.query for board in BOARDS for variable in board.variables if not variable.sql}
    await use(customer, 99)

    async def all_chosen() -> bool:
        parts = [re.fullmatch(r"label_values\((.*), (\w+)\)", query) for query in asked]
        return all([part and await watched.label_values(part[1], part[2]) for part in parts])

    await eventually(all_chosen)
