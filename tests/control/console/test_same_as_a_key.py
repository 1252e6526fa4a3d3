"""A session has exactly what a key of the same member has. That it is so for every operation, every role and both kinds
of organization is tests/control/api/test_allowed.py's."""

from __future__ import annotations

from uuid import uuid4

from storage.roles import Role
from tests.control.console.browser import Town


async def test_a_session_says_of_its_member_what_the_members_key_says(town: Town) -> None:
    async with town.signed_in() as browser:
        me = (await browser.ask("GET", "/admin/v1/me")).body
        headers = {"authorization": f"Bearer {await town.key_of(me['id'])}"}
        key_me = (await browser.ask("GET", "/admin/v1/me", **headers)).body
    assert {**key_me, "key_id": None, "session_id": me["session_id"]} == me


async def test_a_new_role_holds_for_the_next_request(town: Town) -> None:
    path = f"/admin/v1/organizations/{town.organizations['ours']}/projects"
    async with town.signed_in() as browser:
        me = (await browser.ask("GET", "/admin/v1/me")).body
        await town.database.execute("UPDATE gateway.principals SET role = 'viewer' WHERE id = $1::text::uuid", me["id"])
        refused = await browser.ask("POST", path, {"name": uuid4().hex})
        assert (refused.status, refused.code) == (403, "permission_denied")
        assert (await browser.ask("GET", "/console/api/session")).signed_in["role"] == "viewer"


async def test_a_member_that_is_removed_is_signed_out_everywhere(town: Town) -> None:
    async with town.signed_in() as owner, town.signed_in(Role.VIEWER) as viewer:
        member = (await viewer.ask("GET", "/admin/v1/me")).body["id"]
        assert (await owner.ask("DELETE", f"/admin/v1/members/{member}")).status == 200
        assert (await viewer.ask("GET", "/admin/v1/me")).code == "session_ended"
