"""Who reads the texts at which a tenant's prompts differ."""

from __future__ import annotations

from uuid import uuid4

from contracts.dated_request_id import mint
from storage.roles import Role
from tests.control.api.people import People


async def test_texts_are_read_by_the_tenants_own_administrators_alone(people: People) -> None:
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
    for role in (Role.DEVELOPER, Role.VIEWER, Role.BILLING):
        assert (await (await people.as_(role)).ask("GET", texts)).status == 403
    assert (await (await people.operator()).ask("GET", texts)).status == 403
    assert (await (await people.as_(Role.OWNER, "theirs")).ask("GET", texts)).status == 404
    await owner.change(path, {"store_prompts": False})
    assert (await owner.get(texts))["data"] == []
