from __future__ import annotations

import asyncio
import csv
import io
import random
from collections import Counter
from datetime import UTC, date, datetime, time, timedelta
from itertools import pairwise
from typing import Any
from urllib.parse import quote
from uuid import UUID, uuid4

import asyncpg
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from contracts.dated_request_id import arrived_at_s, mint
from control.api.moments import month as month_of
from control.billing.invoice import as_csv, invoice_of
from control.billing.rollup import roll_up
from control.billing.usage import whole_spans
from gateway.metering.journal.records import Closed
from gateway.metering.ledger.ledger import Ledger
from storage.engine import lazy_pool
from storage.roles import Role
from tests.control.api.people import Client, People
from tests.control.slo.trace_rows import trace, write
from tests.gateway.metering.rows import moment, row

BEGIN, END = moment("2026-02-27 18:00"), moment("2026-03-02 06:00")
ADAPTERS = (None, "support", "legal")
SPAN = "start=2026-02-01T00:00:00Z&end=2026-04-01T00:00:00Z"


class AttemptRecord:
    """An organization of its own with rows in two months."""

    def __init__(self, organization_id: UUID, client: Client, rows: list[Closed]) -> None:
        self.path = f"/organizations/{organization_id}"
        self.id = organization_id
        self.client = client
        self.rows = rows

    async def pages(self, path: str) -> list[dict[str, Any]]:
        return await self.client.pages(self.path + path)


@pytest.fixture(scope="module")
async def books(people: People, admin_postgres_url: str) -> AttemptRecord:
    organization = await people.move_in_as("with usage")
    names = {"small": f"small {organization}", "large": f"large {organization}", "free": f"free {organization}"}
    for model, rate in (("small", 200_001), ("large", 3_333_333)):
        await people.price(names[model], rate, rate // 10, rate, rate * 4)
    projects = [
        await people.database.fetchval(
            "INSERT INTO gateway.projects (organization_id, name) VALUES ($1, $2) RETURNING id", organization, name
        )
        for name in ("=first", "second; +1")
    ]
    choose = random.Random(4)
    rows = [_of(row(choose, BEGIN, END), organization, choose.choice(projects), names) for _ in range(500)]
    async with lazy_pool(admin_postgres_url, size=1, connect_timeout_s=5) as pool:
        await Ledger(pool).insert(rows, "g")
    await asyncio.to_thread(roll_up, admin_postgres_url)
    return AttemptRecord(organization, await people.operator(), rows)


def _of(one: Closed, organization: UUID, project: UUID, names: dict[str, str]) -> Closed:
    return replace(
        one,
        opened=replace(
            one.opened,
            organization_id=str(organization),
            project_id=str(project),
            model=names[one.opened.model],
            adapter=ADAPTERS[int(one.opened.request_id[-1], 16) % len(ADAPTERS)],
        ),
    )


async def test_totals_add_up_to_the_events_however_they_are_cut(books: AttemptRecord) -> None:
    events = await books.pages(f"/usage/events?{SPAN}&limit=97")
    assert [event["request_id"] for event in events] == sorted(
        (one.opened.request_id for one in books.rows), reverse=True
    )
    billed = [event for event in events if event["billed"]]
    names = ("prompt_tokens", "cached_tokens", "completion_tokens", "reasoning_tokens", "amount_micro")
    wanted = [len(billed), *(sum(event[name] for event in billed) for name in names)]
    assert wanted[-1] > 0
    for query in (
        "&bucket=all",
        "&bucket=day",
        "&bucket=day&group_by=project&group_by=model&limit=3",
        "&bucket=day&group_by=adapter&limit=4",
        "&bucket=all&group_by=key&group_by=tier&group_by=organization&limit=2",
    ):
        totals = await books.pages(f"/usage?{SPAN}{query}")
        assert [sum(total[name] for total in totals) for name in ("requests", *names)] == wanted, query
    hours = await books.pages("/usage?start=2026-02-27T00:00:00Z&end=2026-03-03T00:00:00Z&bucket=hour&limit=7")
    assert [sum(total[name] for total in hours) for name in ("requests", *names)] == wanted
    assert [hour["hour"] for hour in hours] == sorted((hour["hour"] for hour in hours), reverse=True)
    assert {(hour["model"], hour["key_id"]) for hour in hours} == {(None, None)}


async def test_where_an_attempt_ran_is_told_to_the_operating_organization_alone(
    people: People, books: AttemptRecord
) -> None:
    viewer = await people.as_(Role.VIEWER, "with usage")
    path = f"/organizations/{books.id}/usage/events?{SPAN}&limit=100"
    theirs, operators = (await viewer.get(path))["data"], (await books.client.get(path))["data"]
    for name in ("pool", "engine", "driver"):
        assert {each[name] for each in theirs} == {None}
        assert {each[name] for each in operators} != {None}
    (detail,) = (await viewer.get(f"/requests/{theirs[0]['request_id']}"))["attempts"]
    assert (detail["engine"], detail["pool"]) == (None, None)


async def test_filters_narrow_totals_and_events_alike(books: AttemptRecord) -> None:
    groups = Counter((one.opened.project_id, one.opened.tier.value) for one in books.rows if one.billed)
    for (project, tier), count in groups.items():
        narrow = f"{SPAN}&project_id={project}&tier={tier}"
        [total] = await books.pages(f"/usage?{narrow}&bucket=all")
        assert total["requests"] == count
        events = await books.pages(f"/usage/events?{narrow}&billed=true&limit=100")
        assert len(events) == count
    for kind in ("project", "key"):
        counts = Counter(getattr(one.opened, f"{kind}_id") for one in books.rows if one.billed)
        some = sorted(counts)[:2]
        asked = "".join(f"&{kind}_id={each}" for each in some)
        totals = await books.pages(f"/usage?{SPAN}{asked}&bucket=all&group_by={kind}")
        assert {total[f"{kind}_id"]: total["requests"] for total in totals} == {each: counts[each] for each in some}
        for each in some:
            events = await books.pages(f"/usage/events?{SPAN}&{kind}_id={each}&billed=true&limit=100")
            assert Counter(event[f"{kind}_id"] for event in events) == {each: counts[each]}
    model, count = Counter(one.opened.model for one in books.rows if one.billed).most_common(1)[0]
    [total] = await books.pages(f"/usage?{SPAN}&model={quote(model)}&bucket=all")
    assert total["requests"] == count
    events = await books.pages(f"/usage/events?{SPAN}&model={quote(model)}&billed=true&limit=100")
    assert Counter(event["model"] for event in events) == {model: count}
    assert await books.pages("/usage?start=2026-01-01T00:00:00Z&end=2026-02-01T00:00:00Z&bucket=all") == []
    assert await books.pages("/usage/events?start=2026-03-02T06:00:00Z&end=2026-04-01T00:00:00Z") == []


@pytest.mark.parametrize("by", ["", "&group_by=project&group_by=model", "&group_by=key"])
async def test_one_total_of_any_period_is_that_of_its_hours(books: AttemptRecord, by: str) -> None:
    names = ("requests", "prompt_tokens", "amount_micro")
    for start, end in (
        ("2026-02-27T21:00:00Z", "2026-03-01T19:00:00Z"),
        ("2026-02-28T03:00:00Z", "2026-02-28T09:00:00Z"),
        ("2026-02-20T13:00:00Z", "2026-03-09T00:00:00Z"),
        ("2026-02-15T00:00:00Z", "2026-03-01T00:00:00Z"),
    ):
        whole = await books.pages(f"/usage?start={start}&end={end}&bucket=all{by}&limit=3")
        added: dict[Any, list[int]] = {}
        for hour in await books.pages(f"/usage?start={start}&end={end}&bucket=hour{by}&limit=5000"):
            key = (hour["project_id"], hour["key_id"], hour["model"])
            added[key] = [one + hour[name] for one, name in zip(added.get(key, [0, 0, 0]), names, strict=True)]
        assert {
            (each["project_id"], each["key_id"], each["model"]): [each[name] for name in names] for each in whole
        } == added
        assert added


HOURS = st.integers(0, 24 * 70).map(lambda hours: datetime(2026, 1, 1, tzinfo=UTC) + timedelta(hours=hours))


@given(st.tuples(HOURS, HOURS).filter(lambda two: two[0] < two[1]), st.integers(0, 12))
def test_a_period_is_cut_into_hours_days_and_closed_weeks_that_leave_nothing_out(
    period: tuple[datetime, datetime], weeks: int
) -> None:
    closed = date(2025, 12, 29) + timedelta(days=7 * weeks)
    hours, days, whole_weeks = whole_spans(*period, closed)
    at_midnight = [tuple(datetime.combine(at, time(), UTC) for at in span) for span in (*days, *whole_weeks)]
    covered = sorted([*hours, *at_midnight])
    assert covered[0][0] == period[0]
    assert covered[-1][1] == period[1]
    assert all(one[1] == other[0] for one, other in pairwise(covered))
    assert all(at.weekday() == 0 and at <= closed for span in whole_weeks for at in span)
    assert len(hours) <= 2
    longest = max((until - since for since, until in days), default=timedelta(0))
    assert longest < timedelta(days=14) or period[1].date() > closed


async def test_an_adapters_usage_is_told_apart_from_its_models(books: AttemptRecord) -> None:
    wanted = Counter(one.opened.adapter or "" for one in books.rows if one.billed)
    totals = await books.pages(f"/usage?{SPAN}&bucket=all&group_by=adapter")
    assert {total["adapter"]: total["requests"] for total in totals} == wanted
    assert set(wanted) == {"", "support", "legal"}
    [support] = await books.pages(f"/usage?{SPAN}&bucket=all&adapter=support")
    assert (support["requests"], support["adapter"]) == (wanted["support"], None)
    events = await books.pages(f"/usage/events?{SPAN}&adapter=support&billed=true&limit=100")
    assert len(events) == wanted["support"]


async def test_a_months_invoice_is_the_sum_of_its_events_to_the_micro_unit(
    books: AttemptRecord, admin_postgres_url: str, people: People
) -> None:
    for month in ("2026-02", "2026-03"):
        invoice = await books.client.get(f"{books.path}/invoices/{month}")
        amount, requests = await people.database.fetchrow(
            "SELECT sum(amount_micro)::bigint, count(*) FROM gateway.usage_events WHERE organization_id = $1 AND billed"
            " AND to_char(requested_at AT TIME ZONE 'UTC', 'YYYY-MM') = $2",
            books.id,
            month,
        )
        assert (invoice["amount_micro"], invoice["requests"]) == (amount, requests)
        assert invoice["amount_micro"] == sum(line["amount_micro"] for line in invoice["lines"]) > 0
        free = [line for line in invoice["lines"] if line["model"].startswith("free")]
        assert {(line["price_version"], line["amount_micro"], line["input_micro"]) for line in free} == {
            (None, 0, None)
        }
    connection = await asyncpg.connect(admin_postgres_url)
    period = month_of("2026-03")
    assert period is not None
    told = as_csv(await invoice_of(connection, books.id, *period, "USD"))
    await connection.close()
    lines = list(csv.DictReader(io.StringIO(told)))
    assert sum(int(line["amount_micro"]) for line in lines) == invoice["amount_micro"]
    assert {line["project"] for line in lines} == {"'=first", "second;' +1"}  # no formula for a spreadsheet


@pytest.mark.parametrize(
    ("path", "param"),
    [
        ("/usage?start=2026-03-02T00:00:00Z&end=2026-03-01T00:00:00Z", "end"),
        ("/usage?start=0001-01-01T00:00:00Z", "start"),
        ("/usage?bucket=hour&start=2026-01-01T00:00:00Z&end=2026-03-01T00:00:00Z", "bucket"),
        ("/usage?bucket=week", "bucket"),
        ("/usage?limit=5001", "limit"),
        ("/usage?" + "&".join(["key_id=00000000-0000-0000-0000-000000000000"] * 21), "key_id"),
        ("/usage?cursor=abc", "cursor"),
        ("/usage/events?start=2026-03-01T00:00:00", "start"),
    ],
)
async def test_what_cannot_be_asked_is_refused_by_name(books: AttemptRecord, path: str, param: str) -> None:
    answer = await books.client.ask("GET", books.path + path)
    assert (answer.status, answer.body["error"]["param"]) == (400, param), answer


async def test_days_of_another_zone_are_refused_and_their_hours_are_exact(books: AttemptRecord) -> None:
    day = "start=2026-03-01T00:00:00%2B09:00&end=2026-03-02T00:00:00%2B09:00"
    refused = await books.client.ask("GET", f"/organizations/{books.id}/usage?{day}&bucket=day")
    assert (refused.status, refused.body["error"]["param"]) == (400, "start")
    assert "bucket=hour" in refused.body["error"]["message"]

    hours = await books.pages(f"/usage?{day}&bucket=hour&limit=30")

    begin = datetime(2026, 2, 28, 15, tzinfo=UTC).timestamp()
    wanted = [one for one in books.rows if one.billed and begin <= one.opened.opened_at < begin + 86_400]
    assert sum(hour["requests"] for hour in hours) == len(wanted) > 0
    same = "start=2026-03-01T09:00:00%2B09:00&end=2026-03-02T09:00:00%2B09:00"
    assert (await books.client.ask("GET", f"/organizations/{books.id}/usage?{same}&bucket=day")).status == 200


@pytest.mark.parametrize("month", ["2026-13", "2026-1", "1999-01", "x", "2026-11-01"])
async def test_no_such_month(books: AttemptRecord, month: str) -> None:
    answer = await books.client.ask("GET", f"{books.path}/invoices/{month}")
    assert (answer.status, "write it as 2026-11" in answer.body["error"]["message"]) == (404, True)


async def test_prices_follow_each_other(people: People) -> None:
    operator = await people.operator()
    model = f"m {uuid4()}"
    rates = {"model": model, "input_micro": 1_000, "output_micro": 4_000}
    first = await operator.make("/prices", {**rates, "valid_from": "2026-01-01T00:00:00Z"})
    assert (first["cached_input_micro"], first["cache_write_micro"], first["valid_until"]) == (100, 1_000, None)
    for too_soon in ("2026-06-01T00:00:00Z", "2019-01-01T00:00:00Z"):
        answer = await operator.ask("POST", "/prices", {**rates, "valid_from": too_soon})
        assert (answer.status, answer.body["error"]["param"]) == (400, "valid_from")
    second = await operator.make("/prices", {**rates, "input_micro": 2_000, "valid_from": "2098-01-01T00:00:00Z"})
    answer = await operator.ask("POST", "/prices", {**rates, "valid_from": "2097-01-01T00:00:00Z"})
    assert answer.status == 409
    listed = (await operator.get(f"/prices?model={model.replace(' ', '%20')}"))["data"]
    assert [price["version"] for price in listed] == [second["version"], first["version"]]
    assert listed[1]["valid_until"] == second["valid_from"]
    assert (await operator.ask("DELETE", f"/prices/{first['version']}")).status == 409
    assert (await operator.ask("DELETE", f"/prices/{second['version']}")).status == 200
    [goes_on] = (await operator.get(f"/prices?model={model.replace(' ', '%20')}"))["data"]
    assert (goes_on["version"], goes_on["valid_until"]) == (first["version"], None)
    # Requests are billed by what their gateways know, which all must be the same from then on.
    soon = (datetime.now(UTC) + timedelta(seconds=30)).isoformat()
    answer = await operator.ask("PATCH", f"/prices/{first['version']}", {"valid_until": soon})
    assert (answer.status, answer.body["error"]["param"]) == (400, "valid_until")
    in_time = (datetime.now(UTC) + timedelta(seconds=90)).isoformat()
    assert (await operator.change(f"/prices/{first['version']}", {"valid_until": in_time}))["valid_until"] is not None
    answer = await operator.ask("PATCH", f"/prices/{first['version']}", {"valid_until": "2026-02-01T00:00:00Z"})
    assert answer.status == 400
    assert (await operator.ask("PATCH", "/prices/nothing", {"valid_until": None})).status == 404
    known = await people.database.fetchval(
        "INSERT INTO gateway.prices (model, valid_from, input_micro, cached_input_micro, cache_write_micro,"
        " output_micro) VALUES ($1, now() + interval '30 seconds', 1, 1, 1, 1) RETURNING version",
        f"m-{uuid4()}",
    )
    answer = await operator.ask("DELETE", f"/prices/{known}")
    assert (answer.status, "begins within a minute" in answer.body["error"]["message"]) == (409, True)


async def test_a_price_is_ended_while_the_next_one_is_taken_back(people: People) -> None:
    """Both touch the first price: neither waits for what the other holds."""
    operator = await people.operator()
    for _ in range(6):
        rates = {"model": f"m-{uuid4()}", "input_micro": 1, "output_micro": 1}
        first = await operator.make("/prices", {**rates, "valid_from": "2026-01-01T00:00:00Z"})
        second = await operator.make("/prices", {**rates, "valid_from": "2090-01-01T00:00:00Z"})
        answers = await asyncio.gather(
            operator.ask("DELETE", f"/prices/{second['version']}"),
            operator.ask("PATCH", f"/prices/{first['version']}", {"valid_until": "2091-01-01T00:00:00Z"}),
        )
        assert answers[0].status == 200, answers[0].body
        # the price ends in 2091 where the second one is gone, and before that it has another by then
        assert answers[1].status in (200, 409), answers[1].body


async def test_a_price_that_is_taken_back_leaves_those_around_it_as_if_it_had_never_been(people: People) -> None:
    operator = await people.operator()
    model = f"m-{uuid4()}"

    async def make(begin: str, **until: str) -> dict[str, Any]:
        body = {"model": model, "input_micro": 1, "output_micro": 1, "valid_from": f"{begin}-01-01T00:00:00Z", **until}
        made: dict[str, Any] = await operator.make("/prices", body)
        return made

    async def remove(price: dict[str, Any]) -> None:
        assert (await operator.ask("DELETE", f"/prices/{price['version']}")).status == 200

    async def ends() -> dict[int, str | None]:
        listed = (await operator.get(f"/prices?model={model}"))["data"]
        return {price["version"]: price["valid_until"] and price["valid_until"][:10] for price in listed}

    first, second, third = [await make(begin) for begin in ("2026", "2090", "2095")]
    await remove(second)
    assert await ends() == {first["version"]: "2095-01-01", third["version"]: None}, (
        "the one before goes on to the next"
    )
    await remove(third)
    assert await ends() == {first["version"]: None}, "and that one's end was not set by hand either"
    rows = await people.database.fetch(
        "SELECT action, before ->> 'valid_until' AS before, after ->> 'valid_until' AS after FROM gateway.audit_log"
        " WHERE subject_id = $1 AND subject_kind = 'price' ORDER BY id",
        str(first["version"]),
    )
    assert [(row["action"], (row["before"] or "")[:4], (row["after"] or "")[:4]) for row in rows[-2:]] == [
        ("price.update", "2090", "2095"), ("price.update", "2095", "")
    ]  # fmt: skip

    bounded = await make("2090", valid_until="2091-01-01T00:00:00Z")
    after_a_gap = await make("2095")
    await remove(bounded)
    assert await ends() == {first["version"]: "2095-01-01", after_a_gap["version"]: None}, "it cannot go on for ever"
    await operator.change(f"/prices/{first['version']}", {"valid_until": "2095-01-01T00:00:00Z"})
    await remove(after_a_gap)
    assert await ends() == {first["version"]: "2095-01-01"}, "somebody has said so since"
    right_behind = await make("2095")
    await remove(right_behind)
    assert await ends() == {first["version"]: "2095-01-01"}, "and it was no price that ended it"


async def test_listed_requests_have_their_tokens_and_billed_amount(people: People, books: AttemptRecord) -> None:
    source, per_request = random.Random(8), Counter[str]()
    for event in await books.pages(f"/usage/events?{SPAN}&limit=100"):
        per_request[event["request_id"]] += event["amount_micro"] if event["billed"] else 0
    dear = [request_id for request_id, amount_micro in per_request.items() if amount_micro][:5]
    made = [
        replace(
            trace(source, datetime.fromtimestamp(BEGIN, UTC)),
            request_id=request_id,
            organization_id=books.id,
            model="listed",
        )
        for request_id in dear
    ]
    theirs = replace(made[0], request_id=mint(BEGIN), organization_id=people.organizations["theirs"])
    await write(people.database, [*made, theirs])
    try:
        listed = await books.pages("/requests?model=listed&limit=2")
        assert {each["request_id"]: each["amount_micro"] for each in listed} == {
            each: per_request[each] for each in dear
        }
        tokens = {each.request_id: (each.prompt_tokens, each.completion_tokens) for each in made}
        assert {each["request_id"]: (each["prompt_tokens"], each["completion_tokens"]) for each in listed} == tokens
        ordered = sorted(dear)
        middle = arrived_at_s(ordered[2])
        assert middle is not None
        edge = datetime.fromtimestamp(middle, UTC).isoformat().replace("+00:00", "Z")
        for bound, wanted in (("start", ordered[2:]), ("end", ordered[:2])):
            found = await books.pages(f"/requests?model=listed&{bound}={edge}")
            assert sorted(each["request_id"] for each in found) == wanted
        for name in ("tier", "pool", "project_id"):
            value = next(value for each in made if (value := getattr(each, name)) is not None)
            of_all = f"/requests?start=2026-02-01T00:00:00Z&organization_id={books.id}&{name}={value}"
            found = await books.client.pages(of_all)
            assert {each["request_id"] for each in found} == {
                each.request_id for each in made if getattr(each, name) == value
            }
    finally:
        await people.database.execute(
            "DELETE FROM gateway.request_traces WHERE request_id = ANY($1)", [*dear, theirs.request_id]
        )


async def test_a_request_without_a_trace_is_told_from_its_attempts(books: AttemptRecord) -> None:
    (event,) = (await books.client.get(f"{books.path}/usage/events?{SPAN}&limit=1"))["data"]
    found = await books.client.get(f"/requests/{event['request_id']}")
    last = found["attempts"][-1]
    for name in ("request_id", "organization_id", "project_id", "key_id", "model", "tier", "endpoint"):
        assert found[name] == event[name]
    assert (found["status"], found["error_code"], found["phases_ms"]) == (
        last["status"],
        last["error_code"],
        last["phases_ms"],
    )
    for name in ("decision", "reason", "rule", "counters", "client_request_id", "total_ms", "recorded_at", "latency"):
        assert found[name] is None
    assert found["amount_micro"] == sum(each["amount_micro"] for each in found["attempts"] if each["billed"])
