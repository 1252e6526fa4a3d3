"""A session has exactly what a key of the same member has: every operation, every role, both kinds of organization."""

from __future__ import annotations

from uuid import uuid4

import pytest

from gateway.admin.controllers import OPERATIONS
from gateway.tenants.roles import Role
from tests.gateway.console.browser import Town

NOBODY = uuid4()


@pytest.mark.parametrize("organization", ["ours", "operator"])
@pytest.mark.parametrize("role", Role)
async def test_each_operation_lets_in_a_session_as_it_does_a_key(role: Role, organization: str, town: Town) -> None:
    async with town.signed_in(role, organization) as browser:
        me = (await browser.ask("GET", "/admin/v1/me")).body
        secret = await town.key_of(me["id"])
        refused = 0
        for operation in OPERATIONS:
            path = operation.path
            for name, kind in operation.parameters.items():
                value = town.organizations[organization] if name == "organization_id" else NOBODY if kind else "none"
                path = path.replace(f"{{{name}}}", str(value))
            path = f"/admin/v1{path}"
            # what is let in stops at a body or a query that is wrong on purpose
            wrong: object = None if operation.body is None else {"no such field": 1}
            path += "?no_such_parameter=1" if operation.body is None else ""
            by_session = await browser.ask(operation.method, path, wrong)
            by_key = await browser.ask(
                operation.method, path, wrong, authorization=f"Bearer {secret}", cookie=None, x_csrf_token=None
            )
            assert (by_session.status, by_session.body) == (by_key.status, by_key.body), operation.name
            refused += by_session.status == 403
        assert refused == 0 or (role, organization) != (Role.OWNER, "operator")
        key_me = (await browser.ask("GET", "/admin/v1/me", authorization=f"Bearer {secret}")).body
        assert {**key_me, "key_id": None, "session_id": me["session_id"]} == me


async def test_a_new_role_holds_for_the_next_request(town: Town) -> None:
    path = f"/admin/v1/organizations/{town.organizations['ours']}/projects"
    async with town.signed_in() as browser:
        me = (await browser.ask("GET", "/admin/v1/me")).body
        await town.database.execute("UPDATE gateway.principals SET role = 'viewer' WHERE id = $1::text::uuid", me["id"])
        refused = await browser.ask("POST", path, {"name": uuid4().hex})
        assert (refused.status, refused.code) == (403, "permission_denied")
        assert (await browser.ask("GET", "/console/api/session")).signed_in["role"] == "viewer"


async def test_nobody_sees_another_organization_by_a_session(town: Town) -> None:
    theirs = town.organizations["theirs"]
    async with town.signed_in() as browser:
        for path in (
            f"/organizations/{theirs}",
            f"/organizations/{theirs}/members",
            f"/organizations/{theirs}/projects",
        ):
            assert (await browser.ask("GET", f"/admin/v1{path}")).code == "not_found"


async def test_the_audit_log_names_the_member(town: Town) -> None:
    async with town.signed_in() as browser:
        me = (await browser.ask("GET", "/admin/v1/me")).body
        path = f"/admin/v1/organizations/{town.organizations['ours']}/projects"
        made = await browser.ask("POST", path, {"name": uuid4().hex})
        assert made.status == 201
        rows = await town.database.fetch("SELECT * FROM gateway.audit_log WHERE subject_id = $1", made.body["id"])
    ((row,),) = (rows,)
    assert (row["actor_kind"], str(row["actor_id"]), row["actor_name"]) == ("member", me["id"], me["email"])
    assert row["admin_key_id"] is None
    assert row["request_id"] == made.headers["x-request-id"]


async def test_a_member_that_is_removed_is_signed_out_everywhere(town: Town) -> None:
    async with town.signed_in() as owner, town.signed_in(Role.VIEWER) as viewer:
        member = (await viewer.ask("GET", "/admin/v1/me")).body["id"]
        assert (await owner.ask("DELETE", f"/admin/v1/members/{member}")).status == 200
        assert (await viewer.ask("GET", "/admin/v1/me")).code == "session_ended"
