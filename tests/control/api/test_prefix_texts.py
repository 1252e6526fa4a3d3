"""Texts at which a tenant's prompts differ; test_allowed.py has the roles that read them."""

from __future__ import annotations

from uuid import uuid4

from contracts.dated_request_id import mint
from tests.control.api.people import People


async def test_texts_are_shown_while_the_tenant_lets_them_be_stored(people: People) -> None:
    organization = people.organizations["ours"]
    path, texts = f"/organizations/{organization}", f"/organizations/{organization}/prefix-texts"
    owner = await people.owner()
    await owner.change(path, {"store_prompts": True})
    request_id = mint()
    await people.database.execute(
        "INSERT INTO gateway.prefix_texts (request_id, project_id, organization_id, template, cause, part, later)"
        " VALUES ($1, $2, $3, 't', 'date', 'system', 'Today')",
        request_id,
        uuid4(),
        organization,
    )
    (shown,) = (await owner.get(f"{texts}?template=t"))["data"]
    assert (shown["request_id"], shown["later"], shown["earlier"]) == (request_id, "Today", None)
    await owner.change(path, {"store_prompts": False})
    assert (await owner.get(texts))["data"] == []
