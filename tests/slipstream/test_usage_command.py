"""`slipstream usage` on a database with a month in it."""

from __future__ import annotations

import asyncio
import csv
import io
import json
import random
import re
from collections import Counter
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path

import asyncpg
from click.testing import CliRunner
from msgspec.structs import replace

from control.billing.focus import focus_csv
from gateway.metering.journal.records import Closed
from gateway.metering.ledger.ledger import Ledger
from slipstream.commands.usage import usage
from slipstream.money import amount
from storage.engine import lazy_pool
from tests.control.billing.test_rollup import PRICE, recorded_earlier
from tests.gateway.metering.rows import TENANTS, moment, row

RATES = {"small": (200_000, 20_000, 250_000, 800_000), "large": (3_000_000, 300_000, 0, 15_000_000)}


async def test_an_invoice_and_its_verification(fresh_postgres_url: str, tmp_path: Path) -> None:
    settings = tmp_path / "slipstream.toml"
    settings.write_text(f'[local]\ndata = "{tmp_path}"\ndatabase_url = "{fresh_postgres_url}"\n')
    choose = random.Random(2)
    yesterday = datetime.now(UTC).date() - timedelta(days=1)
    begin, month = moment(str(yesterday)), f"{yesterday:%Y-%m}"
    async with lazy_pool(fresh_postgres_url, size=1, connect_timeout_s=5) as pool:
        await pool.execute(PRICE)
        rows = [row(choose, begin, begin + 86_399) for _ in range(100)]
        rows[::2] = [replace(each, opened=replace(each.opened, adapter="support")) for each in rows[::2]]
        await Ledger(pool).insert(rows, "g")
        wanted = await pool.fetchval("SELECT sum(amount_micro)::bigint FROM gateway.usage_events")
        await pool.execute("INSERT INTO gateway.organizations (id, name) VALUES ($1, 'acme')", TENANTS[0])
    assert wanted > 0
    exact = sum((_exact_micro(each) for each in rows if each.billed), Decimal())

    async def run(*arguments: str) -> tuple[int, str]:
        result = await asyncio.to_thread(CliRunner().invoke, usage, [*arguments, "--config", str(settings)])
        return result.exit_code, result.stdout

    code, told = await run("invoice", "--organization", TENANTS[0], "--month", month, "--csv")
    assert code == 0
    assert sum(int(line["amount_micro"]) for line in csv.DictReader(io.StringIO(told))) == wanted
    code, told = await run("invoice", "--organization", TENANTS[0], "--month", month)
    assert code == 0
    assert told.startswith(f"acme owes {amount(wanted)} USD for ")
    assert re.split("  +", told.splitlines()[2].strip()) == [
        "project", "key", "model", "tier", "requests", "prompt", "cached", "output", "share of price", "USD"
    ]  # fmt: skip
    code, told = await run("invoice", "--organization", "acme", "--month", month, "--json")
    invoice = json.loads(told)
    assert (code, invoice["amount_micro"], invoice["currency"]) == (0, wanted, "USD")
    assert Decimal(invoice["unrounded_micro"]) == exact != wanted
    assert Decimal(invoice["rounding_micro"]) == wanted - exact
    for line in invoice["lines"]:
        assert abs(Decimal(line["rounding_micro"])) <= Decimal("0.5") * line["requests"]
    assert (await run("invoice", "--organization", TENANTS[0], "--month", "March"))[0] == 2
    earliest = f"{datetime.now(UTC):%Y-%m}"
    code, told = await run("invoice", "--organization", "acme", "--json")
    assert (code, earliest <= json.loads(told)["begin"][:7] <= f"{datetime.now(UTC):%Y-%m}") == (0, True)

    code, told = await run("verify", "--days", "3", "--json")
    assert (code, json.loads(told)["rows"]) == (0, 100)
    code, told = await run("verify", "--days", "3")
    assert (code, told.startswith("right: totals and amounts of the days from ")) == (0, True)
    drafted: dict[str, list[int]] = {}
    for each in (one for one in rows if one.billed):
        sums = drafted.setdefault(each.opened.model, [0, 0])
        sums[0] += each.usage.draft_tokens
        sums[1] += each.usage.accepted_draft_tokens
    code, told = await run("drafts", "--days", "3", "--json")
    shown = [json.loads(line) for line in told.splitlines()]
    assert {one["model"]: [one["draft_tokens"], one["accepted_draft_tokens"]] for one in shown} == drafted
    assert {one["organization"] for one in shown} == {"acme"}
    code, told = await run("drafts", "--organization", "acme", "--days", "3")
    assert (code, told.count("acme")) == (0, len(drafted))
    assert "%" in told

    code, told = await run(
        "totals", "--organization", "acme", "--by", "day", "--by", "adapter", "--days", "3", "--json"
    )
    counted = {each["adapter"]: each["requests"] for each in map(json.loads, told.splitlines())}
    ours = [each for each in rows if each.billed and each.opened.organization_id == TENANTS[0]]
    assert (code, counted) == (0, Counter(each.opened.adapter or "" for each in ours))
    code, told = await run("totals", "--organization", "acme", "--by", "adapter", "--by", "project")
    assert told.splitlines()[0].split()[:3] == ["project", "adapter", "requests"]
    assert told.splitlines()[1].endswith(" USD")
    assert {line.split()[1] for line in told.splitlines()[1:]} == {"-", "support"}
    code, told = await run("export", "--format", "focus", "--month", month, "--organization", "acme")
    charges = list(csv.DictReader(io.StringIO(told)))
    assert (code, sum(Decimal(each["BilledCost"]) for each in charges) * 1_000_000) == (0, wanted)
    assert (await run("export", "--month", "March"))[0] == 2
    code, told = await run("good-tokens", "--days", "3", "--by", "tier", "--json")
    report = json.loads(told)
    assert (code, sum(each["amount_micro"] for each in report["data"])) == (0, wanted)
    code, told = await run("good-tokens", "--organization", "acme", "--days", "3")
    assert (code, told.splitlines()[0].split()[:5]) == (0, ["organization", "tier", "length", "requests", "good"])
    assert {line.split()[-1] for line in told.splitlines()[1:]} == {"-"}, "no trace is kept, so none was good"
    await recorded_earlier(fresh_postgres_url)  # or the day would be added up anew
    connection = await asyncpg.connect(fresh_postgres_url)
    await connection.execute("UPDATE gateway.project_usage_daily SET requests = requests + 1 WHERE day = $1", yesterday)
    await connection.close()
    code, told = await run("verify", "--days", "3", "--json")
    assert (code, json.loads(told)["wrong_days"]) == (1, 1)
    code, told = await run("verify", "--days", "3")
    assert (code, told.startswith("wrong: 0 hours, 1 days and 0 amounts")) == (1, True)


async def test_a_focus_file_has_the_prices_of_the_class_offline(fresh_postgres_url: str) -> None:
    """Fault: it had a batch at its model's full price, and half of that as rounding."""
    begin = moment("2026-03-10")
    rows = [replace(row(random.Random(each), begin, begin + 60), billed=True) for each in range(8)]
    rows = [
        replace(each, opened=replace(each.opened, model="small", offline=number % 2 > 0))
        for number, each in enumerate(rows)
    ]
    async with lazy_pool(fresh_postgres_url, size=1, connect_timeout_s=5) as pool:
        await pool.execute(
            "INSERT INTO gateway.prices (model, valid_from, input_micro, cached_input_micro, cache_write_micro,"
            " output_micro, offline_percent) VALUES ('small', '2020-01-01', 200000, 20000, 250000, 800000, 50)"
        )
        await Ledger(pool).insert(rows, "g")
        wanted = await pool.fetchval("SELECT sum(amount_micro)::bigint FROM gateway.usage_events")
        async with pool.acquire() as connection:
            period = datetime(2026, 3, 1, tzinfo=UTC), datetime(2026, 4, 1, tzinfo=UTC)
            charges = list(csv.DictReader(io.StringIO(await focus_csv(connection, None, *period, "USD"))))
    assert sum(Decimal(each["BilledCost"]) for each in charges) * 1_000_000 == wanted
    roundings = [Decimal(each["BilledCost"]) for each in charges if each["ChargeCategory"] == "Adjustment"]
    assert max(map(abs, roundings)) <= Decimal("0.0000005") * len(rows)
    output = {each["SkuPriceId"]: each["ListUnitPrice"] for each in charges if each["SkuMeter"] == "Output Tokens"}
    assert output == {"1/Output Tokens": "0.8", "1 at 50 %/Output Tokens": "0.4"}


def _exact_micro(closed: Closed) -> Decimal:
    """Tokens times rates of test_rollup's PRICE, not rounded."""
    usage, (fresh, cached, written, output) = closed.usage, RATES.get(closed.opened.model, (0, 0, 0, 0))
    computed = usage.prompt_tokens - usage.cached_tokens - usage.cache_write_tokens
    parts = (
        computed * fresh,
        usage.cached_tokens * cached,
        usage.cache_write_tokens * written,
        usage.completion_tokens * output,
    )
    return Decimal(sum(parts)) / 1_000_000
