"""Organizations and projects over HTTP: made, listed in pages, changed, refused."""

from __future__ import annotations

from uuid import uuid4

from yarl import URL

from storage.roles import Role
from tests.control.api.people import People


async def test_who_am_i(people: People) -> None:
    me = await (await people.as_(Role.BILLING)).get("/me")
    assert (me["role"], me["operator"]) == ("billing", False)
    assert me["organization_id"] == str(people.organizations["ours"])
    assert "limits.write" in me["permissions"]
    assert "keys.write" not in me["permissions"]


async def test_pages_hold_every_project_once(people: People) -> None:
    owner, organization = await people.owner(), people.organizations["ours"]
    path = f"/organizations/{organization}/projects"
    made = [(await owner.make(path, {"name": f"p{number} {uuid4()}"}))["id"] for number in range(7)]
    seen = [project["id"] for project in await owner.pages(f"{path}?limit=3")]
    assert len((await owner.get(f"{path}?limit=3"))["data"]) == 3
    assert len(seen) == len(set(seen))
    assert [project for project in seen if project in made] == made[::-1]  # newest first


async def test_an_unknown_field_and_a_bad_value_are_named(people: People) -> None:
    owner, path = await people.owner(), f"/organizations/{people.organizations['ours']}/projects"
    for body, code, param in (
        ({"name": "x", "colour": 1}, "unknown_parameter", "colour"),
        ({}, "missing_required_parameter", "name"),
        ({"name": "x\n"}, "invalid_value", "name"),
        ({"name": 5}, "invalid_value", "name"),
        ({"name": "x", "tiers": ["fast"]}, "invalid_value", "tiers[0]"),
        ({"name": "x", "models": ["no-such"]}, "invalid_value", "models[0]"),
    ):
        answer = await owner.ask("POST", path, body)
        assert (answer.status, answer.body["error"]["code"], answer.body["error"]["param"]) == (400, code, param)
    for query, param in (
        ("?limit=0", "limit"),
        ("?limt=3", "limt"),
        ("?cursor=!", "cursor"),
        ("?limit=2&limit=3", "limit"),
    ):
        answer = await owner.ask("GET", path + query)
        assert (answer.status, answer.body["error"]["param"]) == (400, param)


async def test_bytes_that_are_no_text_are_refused(people: People) -> None:
    owner = await people.owner()
    for spelled in ("%00", "a%00b", "%ff", "%ed%a0%80", "%c3%28"):
        place = f"{people.url}/admin/v1/requests/{spelled}"
        headers = {"authorization": f"Bearer {owner.secret}"}
        async with people.session.get(URL(place, encoded=True), headers=headers) as response:
            assert response.status == 404, spelled
        place = f"{people.url}/admin/v1/audit?action={spelled}"
        async with people.session.get(URL(place, encoded=True), headers=headers) as response:
            assert response.status in (200, 400), spelled
        raw = b'{"name": "' + (b"\\u0000" if spelled == "%00" else b"\\ud800") + b'"}'
        async with people.session.post(
            f"{people.url}/admin/v1/organizations/{people.organizations['ours']}/projects",
            data=raw,
            headers={**headers, "content-type": "application/json"},
        ) as response:
            assert response.status == 400, spelled


async def test_a_taken_name_is_a_conflict(people: People) -> None:
    owner, path = await people.owner(), f"/organizations/{people.organizations['ours']}/projects"
    name = str(uuid4())
    await owner.make(path, {"name": name})
    answer = await owner.ask("POST", path, {"name": name})
    assert (answer.status, answer.body["error"]["code"]) == (409, "conflict")
    assert answer.headers["x-should-retry"] == "false"


async def test_changes_leave_the_rest_and_say_before_and_after(people: People) -> None:
    owner, path = await people.owner(), f"/organizations/{people.organizations['ours']}/projects"
    project = await owner.make(path, {"name": str(uuid4()), "tiers": ["chat", "chat"]})
    assert project["tiers"] == ["chat"]
    changed = await owner.change(f"/projects/{project['id']}", {"models": ["wide"]})
    assert changed == {**project, "models": ["wide"]}
    disabled = await owner.change(f"/projects/{project['id']}", {"disabled": True, "tiers": None})
    assert disabled["disabled_at"] is not None
    assert disabled["tiers"] is None
    rows = await people.database.fetch(
        "SELECT action, actor_name, before::jsonb ->> 'tiers' AS tiers, after::jsonb -> 'models' AS models"
        "  FROM gateway.audit_log WHERE subject_id = $1 ORDER BY id",
        project["id"],
    )
    assert [row["action"] for row in rows] == ["project.create", "project.update", "project.update"]
    assert rows[2]["tiers"] == '["chat"]'
    assert rows[2]["models"] == '["wide"]'


async def test_only_the_operating_organization_disables_organizations(people: People) -> None:
    operator = await people.operator()
    made = await operator.make("/organizations", {"name": str(uuid4())})
    owner = await people.owner()
    ours = people.organizations["ours"]
    assert (await owner.ask("PATCH", f"/organizations/{ours}", {"disabled": True})).status == 403
    assert (await owner.ask("PATCH", f"/organizations/{made['id']}", {"name": "mine"})).status == 404
    assert (await operator.change(f"/organizations/{made['id']}", {"disabled": True}))["disabled_at"] is not None
    itself = people.organizations["operator"]
    assert (await operator.ask("PATCH", f"/organizations/{itself}", {"disabled": True})).status == 409


async def test_a_name_says_nothing_about_who_else_is_here(people: People) -> None:
    """A refusal of a name that is taken would; and whoever takes a name must not take it from somebody."""
    operator, owner = await people.operator(), await people.owner()
    theirs = await operator.get(f"/organizations/{people.organizations['theirs']}")
    before = await owner.get(f"/organizations/{people.organizations['ours']}")
    renamed = await owner.change(f"/organizations/{before['id']}", {"name": theirs["name"]})
    assert renamed["name"] == theirs["name"]
    found = await operator.get(f"/organizations?name={URL.build(path=theirs['name']).raw_path}")
    assert {each["id"] for each in found["data"]} == {before["id"], theirs["id"]}
    await owner.change(f"/organizations/{before['id']}", {"name": before["name"]})
