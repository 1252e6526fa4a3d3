"""The price of good tokens, added up by hand; and the file for finance, whose sum is the invoice."""

from __future__ import annotations

import asyncio
import csv
import io
import random
from collections import defaultdict
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any
from uuid import UUID

import msgspec
import pytest
from msgspec.structs import replace

from contracts.generation import Tier
from contracts.length_class import length_class
from contracts.objectives import OBJECTIVES
from control.billing.focus import COLUMNS, focus_csv
from control.billing.rollup import roll_up
from control.slo.adoption import adopt
from control.slo.judgement import judge
from gateway.metering.journal.records import Closed
from gateway.metering.ledger.ledger import Ledger
from storage.engine import lazy_pool
from storage.roles import Role
from tests.control.api.people import Client, People
from tests.control.slo.trace_rows import trace, write
from tests.gateway.metering.rows import moment, row

BEGIN, END = moment("2026-03-02 18:00"), moment("2026-03-04 06:00")
PERIOD = "start=2026-03-02T00:00:00Z&end=2026-03-05T00:00:00Z"
BY_CLASS = {(each.tier, each.length): each for each in OBJECTIVES}
INPUT, CACHED, WRITTEN, OUTPUT = 200_001, 20_003, 250_007, 800_009


class Billed(msgspec.Struct):
    """An organization's attempts, and which of them kept their objective."""

    id: UUID
    operator: Client
    owner: Client
    rows: list[Closed]
    good: set[str]


@pytest.fixture(scope="module")
async def billed(people: People, admin_postgres_url: str) -> Billed:
    name, choose = "with good tokens", random.Random(7)
    organization = await people.move_in_as(name)
    models = [f"{short} {organization}" for short in ("small", "large")]
    for model in models:
        await people.price(model, INPUT, CACHED, WRITTEN, OUTPUT)
    await adopt(people.database, OBJECTIVES)
    rows, traces, good = [], [], set()
    for number in range(250):
        made = row(choose, BEGIN, END)
        # an attempt of a model without a price costs nothing
        model = choose.choice([*models, f"unpriced {organization}"])
        made = replace(made, opened=replace(made.opened, organization_id=str(organization), model=model))
        rows.append(made)
        if number % 5 == 0:  # its trace was dropped
            continue
        traced = replace(
            trace(choose, datetime.fromtimestamp(made.opened.opened_at, UTC)),
            request_id=made.opened.request_id,
            organization_id=organization,
            tier=made.opened.tier.value,
            prompt_tokens=made.usage.prompt_tokens,
        )
        traces.append(traced)
        objective = BY_CLASS[Tier(made.opened.tier), length_class(made.usage.prompt_tokens)]
        if judge(traced, objective).good:
            good.add(made.opened.request_id)
    async with lazy_pool(admin_postgres_url, size=1, connect_timeout_s=5) as pool:
        await Ledger(pool).insert(rows, "g")
    await write(people.database, traces)
    await asyncio.to_thread(roll_up, admin_postgres_url)
    paid = [one for one in rows if one.billed]
    assert good & {one.opened.request_id for one in paid}
    return Billed(organization, await people.operator(), await people.as_(Role.BILLING, name), paid, good)


def expected(billed: Billed) -> dict[tuple[str, str], dict[str, int]]:
    found: dict[tuple[str, str], dict[str, int]] = defaultdict(lambda: defaultdict(int))
    for one in billed.rows:
        usage, kept = one.usage, one.opened.request_id in billed.good
        of = found[one.opened.tier.value, length_class(usage.prompt_tokens).value]
        priced = not one.opened.model.startswith("unpriced")
        prompt = usage.prompt_tokens - usage.cached_tokens - usage.cache_write_tokens
        rated = prompt * INPUT + usage.cached_tokens * CACHED + usage.cache_write_tokens * WRITTEN
        output = (usage.completion_tokens * OUTPUT + 500_000) // 1_000_000 if priced else 0
        amount = (rated + usage.completion_tokens * OUTPUT + 500_000) // 1_000_000 if priced else 0
        for name, value in (
            ("requests", 1),
            ("good", kept),
            ("input_tokens", usage.prompt_tokens),
            ("output_tokens", usage.completion_tokens),
            ("good_input_tokens", kept * usage.prompt_tokens),
            ("good_output_tokens", kept * usage.completion_tokens),
            ("amount_micro", amount),
            ("input_amount_micro", amount - output),
            ("output_amount_micro", output),
        ):
            of[name] += value
    return found


async def test_good_tokens_cost_what_the_rows_say(billed: Billed) -> None:
    report = await billed.owner.get(f"/organizations/{billed.id}/slo/token-costs?{PERIOD}")
    wanted = expected(billed)
    told = {(each["tier"], each["length"]): each for each in report["data"]}
    assert told.keys() == wanted.keys()
    for group, sums in wanted.items():
        assert {name: told[group][name] for name in sums} == dict(sums), group
        for kind in ("input", "output"):
            tokens, amount = sums[f"good_{kind}_tokens"], sums[f"{kind}_amount_micro"]
            rate = told[group][f"per_million_good_{kind}_micro"]
            assert rate == (None if not tokens else (2 * amount * 1_000_000 + tokens) // (2 * tokens))
    invoice = await billed.operator.get(f"/organizations/{billed.id}/invoices/2026-03")
    (one,) = (await billed.operator.get(f"/slo/token-costs?{PERIOD}&group_by=organization&tier=chat"))["data"][:1]
    assert one["tier"] is None
    assert sum(each["amount_micro"] for each in report["data"]) == invoice["amount_micro"] > 0
    whole = await billed.operator.get(f"/organizations/{billed.id}/slo/token-costs?{PERIOD}&group_by=organization")
    assert [each["amount_micro"] for each in whole["data"]] == [invoice["amount_micro"]]
    short = await billed.owner.get(f"/organizations/{billed.id}/slo/token-costs?{PERIOD}&length=short")
    assert {each["length"] for each in short["data"]} == {"short"}
    chat = await billed.owner.get(f"/organizations/{billed.id}/slo/token-costs?{PERIOD}&tier=chat")
    assert [each["amount_micro"] for each in chat["data"]] == [
        each["amount_micro"] for each in report["data"] if each["tier"] == "chat"
    ]


async def test_a_period_that_is_too_long_is_refused_by_name(billed: Billed) -> None:
    path = f"/organizations/{billed.id}/slo/token-costs?start=2026-01-01T00:00:00Z&end=2026-03-05T00:00:00Z"
    answer = await billed.owner.ask("GET", path)
    assert (answer.status, answer.body["error"]["param"]) == (400, "start")


async def test_the_focus_file_adds_up_to_the_invoice(people: People, billed: Billed) -> None:
    begin, end = datetime(2026, 3, 1, tzinfo=UTC), datetime(2026, 4, 1, tzinfo=UTC)
    text = await focus_csv(people.database, billed.id, begin, end, "EUR")
    rows: list[dict[str, Any]] = list(csv.DictReader(io.StringIO(text)))
    assert tuple(rows[0]) == COLUMNS
    invoice = await billed.operator.get(f"/organizations/{billed.id}/invoices/2026-03")
    assert sum(Decimal(each["BilledCost"]) for each in rows) * 1_000_000 == invoice["amount_micro"]
    used = [each for each in rows if each["ChargeCategory"] == "Usage"]
    for meter, count in (
        ("Output Tokens", sum(one.usage.completion_tokens for one in billed.rows)),
        ("Cached Input Tokens", sum(one.usage.cached_tokens for one in billed.rows)),
    ):
        assert sum(int(each["ConsumedQuantity"]) for each in used if each["SkuMeter"] == meter) == count
    for each in used:
        price = Decimal(each["ListUnitPrice"] or 0)
        assert Decimal(each["PricingQuantity"]) * price == Decimal(each["ListCost"])
        assert each["ChargePeriodStart"] < each["ChargePeriodEnd"]
        assert each["BillingPeriodStart"] == "2026-03-01T00:00:00Z"
        assert each["BillingAccountId"] == str(billed.id)
    assert {each["ChargeCategory"] for each in rows} == {"Usage", "Adjustment"}
    whole = await focus_csv(people.database, None, begin, end, "EUR")
    assert str(billed.id) in whole
