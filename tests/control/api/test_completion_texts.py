"""Who may have texts stored, and who reads them."""

from __future__ import annotations

from uuid import uuid4

from contracts.dated_request_id import mint
from storage.roles import Role
from tests.control.api.people import People


async def test_a_tenant_opts_in_reads_and_opts_out(people: People) -> None:
    organization = people.organizations["ours"]
    path, texts = f"/organizations/{organization}", f"/organizations/{organization}/completion-texts"
    owner, operator = await people.owner(), await people.operator()
    assert (await owner.get(path))["store_prompts"] is False

    refused = await operator.ask("PATCH", path, {"store_prompts": True})
    assert (refused.status, refused.body["error"]["code"]) == (403, "permission_denied")
    assert (await (await people.as_(Role.ADMIN)).ask("PATCH", path, {"store_prompts": True})).status == 403
    assert (await owner.change(path, {"store_prompts": True}))["store_prompts"] is True

    project = uuid4()
    ids = [mint(1_800_000_000 + number) for number in range(3)]
    for number, request_id in enumerate(ids):
        await people.database.execute(
            "INSERT INTO gateway.completion_texts (request_id, project_id, organization_id, prefix, suffix, completion)"
            " VALUES ($1, $2, $3, 'before', 'behind', 'text')",
            request_id,
            project if number else uuid4(),
            organization,
        )
    page = await (await people.as_(Role.ADMIN)).get(f"{texts}?limit=2")
    assert [each["request_id"] for each in page["data"]] == [ids[2], ids[1]]
    assert page["has_more"]
    assert (page["data"][0]["prefix"], page["data"][0]["suffix"], page["data"][0]["completion"]) == (
        "before",
        "behind",
        "text",
    )
    assert len((await owner.get(f"{texts}?project_id={project}"))["data"]) == 2

    assert (await operator.change(path, {"store_prompts": False}))["store_prompts"] is False
    assert (await owner.get(texts))["data"] == []
    log = (await owner.get(f"/audit?organization_id={organization}&limit=100"))["data"]
    changes = [
        (each["before"]["store_prompts"], each["after"]["store_prompts"])
        for each in log
        if each["action"] == "organization.update" and each["subject_id"] == str(organization)
    ]
    assert changes[:2] == [(True, False), (False, True)]
