"""OpenAI's organization API, asked by OpenAI's SDK: its sums are those of the invoice, and a role decides who reads."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from typing import Any
from uuid import UUID

import msgspec
import openai
import pytest
from msgspec.structs import replace

from control.billing.rollup import roll_up
from gateway.metering.ledger.ledger import Ledger
from storage.engine import lazy_pool
from storage.roles import Role
from tests.control.api.people import Client, People
from tests.gateway.metering.rows import moment, row
from tests.waiting import eventually

BEGIN, END = int(moment("2026-02-03 18:00")), int(moment("2026-02-05 06:00"))


class Books(msgspec.Struct):
    """An organization with two projects, two text models and one for vectors."""

    id: UUID
    models: dict[str, str]
    owner: Client
    operator: Client
    billed: list[Any]

    def sdk(self, client: Client | None = None) -> openai.AsyncOpenAI:
        asking = client or self.owner
        return openai.AsyncOpenAI(base_url=f"{asking._url}/v1", api_key="x", admin_api_key=asking.secret, max_retries=0)


@pytest.fixture(scope="module")
async def books(people: People, admin_postgres_url: str) -> AsyncIterator[Books]:
    name = "with costs"
    organization = await people.move_in_as(name)
    projects = [
        await people.database.fetchval(
            "INSERT INTO gateway.projects (organization_id, name) VALUES ($1, $2) RETURNING id", organization, project
        )
        for project in ("first", "second")
    ]
    models = {short: f"{short} {organization}" for short in ("small", "large", "free")}
    models["free"] = f"vectors-{organization}"
    for model in models.values():
        await people.price(model, 200_001, 20_000, 200_001, 800_000)
    operator = await people.operator()
    vectors = models["free"]
    definition = {"name": vectors, "tier": "chat", "pool": "one", "context_tokens": 4_096, "task": "embedding"}
    answer = await operator.ask("PUT", f"/models/{vectors}", definition)
    assert answer.status == 200, answer
    choose = random.Random(11)
    rows = [row(choose, BEGIN, END) for _ in range(200)]
    rows = [
        replace(
            one,
            opened=replace(
                one.opened,
                organization_id=str(organization),
                project_id=str(choose.choice(projects)),
                model=models[one.opened.model],
            ),
        )
        for one in rows
    ]
    async with lazy_pool(admin_postgres_url, size=1, connect_timeout_s=5) as pool:
        await Ledger(pool).insert(rows, "g")
    await asyncio.to_thread(roll_up, admin_postgres_url)
    owner = await people.as_(Role.OWNER, name)
    books = Books(organization, models, owner, operator, [one for one in rows if one.billed])

    async def known() -> bool:  # a gateway follows the fleet
        async with books.sdk() as client:
            page = await client.admin.organization.usage.embeddings(start_time=BEGIN, end_time=END)
            return any(bucket.results for bucket in page.data)

    await eventually(known)
    yield books
    await operator.ask("DELETE", f"/models/{vectors}")


async def whole(method: Any, **asked: Any) -> tuple[list[Any], list[Any]]:
    buckets: list[Any] = []
    page: Any = None
    while page is None or page.has_more:
        page = await method(**asked, **({} if page is None else {"page": page.next_page}))
        buckets += page.data
    return buckets, [result for bucket in buckets for result in bucket.results]


@pytest.mark.parametrize(("width", "seconds", "limit"), [("1d", 86_400, 2), ("1h", 3_600, 20), ("1m", 60, 1_440)])
async def test_every_width_adds_up_to_the_ledger(books: Books, width: Any, seconds: int, limit: int) -> None:
    async with books.sdk() as client:
        usage = client.admin.organization.usage
        period = {"start_time": BEGIN + 1, "end_time": END, "bucket_width": width, "limit": limit}
        groups = ["project_id", "api_key_id", "model"]
        buckets, text = await whole(usage.completions, **period, group_by=groups)
        _, vectors = await whole(usage.embeddings, **period, group_by=groups)
    starts = [bucket.start_time for bucket in buckets]
    assert starts == list(range(BEGIN - BEGIN % seconds, END, seconds))
    assert {bucket.end_time - bucket.start_time for bucket in buckets} == {seconds}
    embedded = [one for one in books.billed if one.opened.model == books.models["free"]]
    generated = [one for one in books.billed if one.opened.model != books.models["free"]]
    for results, rows in ((text, generated), (vectors, embedded)):
        assert sum(each.num_model_requests for each in results) == len(rows) > 0
        assert sum(each.input_tokens for each in results) == sum(one.usage.prompt_tokens for one in rows)
        found = {(each.project_id, each.api_key_id, each.model) for each in results}
        assert found == {(one.opened.project_id, one.opened.key_id, one.opened.model) for one in rows}
    assert sum(each.output_tokens for each in text) == sum(one.usage.completion_tokens for one in generated)
    assert sum(each.input_cached_tokens for each in text) == sum(one.usage.cached_tokens for one in generated)


async def test_costs_are_the_invoice_to_the_micro_unit(books: Books) -> None:
    invoice = await books.operator.get(f"/organizations/{books.id}/invoices/2026-02")
    async with books.sdk() as client:
        _, costs = await whole(
            client.admin.organization.usage.costs,
            start_time=BEGIN,
            end_time=END,
            bucket_width="1d",
            group_by=["line_item", "project_id"],
        )
        (alone,) = (await whole(client.admin.organization.usage.costs, start_time=BEGIN, end_time=BEGIN + 60))[1]
    assert sum(each.amount.micro for each in costs) == invoice["amount_micro"] > 0
    assert {each.amount.currency for each in costs} == {invoice["currency"].lower()}
    by_model = dict.fromkeys(books.models.values(), 0)
    for line in invoice["lines"]:
        by_model[line["model"]] += line["amount_micro"]
    assert {
        model: sum(each.amount.micro for each in costs if each.line_item == model) for model in by_model
    } == by_model
    assert alone.line_item is None
    assert alone.amount.value == alone.amount.micro / 1e6


async def test_filters_narrow_and_what_is_not_kept_is_refused_by_name(books: Books) -> None:
    small = books.models["small"]
    async with books.sdk() as client:
        usage = client.admin.organization.usage
        _, results = await whole(usage.completions, start_time=BEGIN, end_time=END, models=[small])
        rows = [one for one in books.billed if one.opened.model == small]
        assert sum(each.num_model_requests for each in results) == len(rows)
        for asked, param in (
            ({"group_by": ["batch"]}, "group_by"),
            ({"user_ids": ["somebody"]}, "user_ids"),
            ({"limit": 32}, "limit"),
            ({"page": "page_1000000000"}, "page"),
            ({"end_time": BEGIN - 86_400}, "end_time"),
        ):
            with pytest.raises(openai.BadRequestError) as caught:
                await usage.completions(**{"start_time": BEGIN, **asked})  # type: ignore[arg-type]
            assert str(caught.value.param).startswith(param), param


async def test_projects_users_and_admin_keys_are_listed_in_openais_words(people: People, books: Books) -> None:
    async with books.sdk() as client:
        organization = client.admin.organization
        names = [project.name async for project in organization.projects.list(limit=1)]
        assert names == ["second", "first"]
        (first,) = [project async for project in organization.projects.list() if project.name == "first"]
        assert (first.status, first.archived_at) == ("active", None)
        assert (await organization.projects.retrieve(first.id)).id == first.id
        users = [user async for user in organization.users.list()]
        assert [user.role for user in users] == ["owner"]
        assert (await organization.users.retrieve(users[0].id)).email == users[0].email
        (key,) = [key async for key in organization.admin_api_keys.list()]
        assert (key.owner.id, key.owner.type) == (users[0].id, "user")
        assert key.redacted_value.startswith("sk-slip-admin-")
        assert books.owner.secret not in key.redacted_value


async def test_another_organization_is_not_found_and_a_role_without_the_permission_is_refused(
    people: People, books: Books
) -> None:
    stranger = await people.owner()
    async with books.sdk(stranger) as client:
        usage = client.admin.organization.usage
        _, results = await whole(usage.completions, start_time=BEGIN, end_time=END)
        assert results == [], "its own organization's, which has none"
        with pytest.raises(openai.NotFoundError):
            await usage.completions(start_time=BEGIN, extra_query={"organization_id": str(books.id)})
    async with books.sdk(books.operator) as client:
        _, results = await whole(
            client.admin.organization.usage.costs,
            start_time=BEGIN,
            end_time=END,
            extra_query={"organization_id": str(books.id)},
        )
        assert sum(each.amount.micro for each in results) > 0
    async with books.sdk(await people.as_(Role.BILLING)) as client:
        await client.admin.organization.usage.costs(start_time=BEGIN, bucket_width="1d")
        with pytest.raises(openai.PermissionDeniedError):
            [key async for key in client.admin.organization.admin_api_keys.list()]
    async with books.sdk(people.with_secret("sk-slip-admin-none")) as client:
        with pytest.raises(openai.AuthenticationError):
            await client.admin.organization.usage.costs(start_time=BEGIN, bucket_width="1d")
