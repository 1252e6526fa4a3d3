"""What the console's own routes change is in the audit log, by whom and once: of every route there is."""

from __future__ import annotations

import base64
import time

import asyncpg
import msgspec
import pyotp

from control.api.sealed import seal
from control.console import second_factor
from control.console.oidc.flow import PROVED, USE, Proved
from control.console.routes import OPERATIONS
from storage.roles import Role
from tests.audited import all_audited
from tests.control.api.lone_gateway import LoneGateway
from tests.control.console.browser import PASSWORD, Answer, Browser, Town

NEW = "five other words in line"
ISSUER = "https://id.example"
LEAVES = {
    "POST /session": ["console_session.create"],
    "POST /welcome/preview": [],
    "POST /welcome": ["console_account.create", "console_session.create"],
    "POST /totp": ["console_account.update"],
    "POST /totp/confirm": ["console_account.update"],
    "POST /totp/recovery-codes": ["console_account.update"],
    "POST /totp/disable": ["console_account.update"],
    "POST /password": ["console_account.update"],
    "DELETE /sessions/{session_id}": ["console_session.delete"],
    "DELETE /sessions": ["console_session.delete"],
    "DELETE /session": ["console_session.delete"],
    "DELETE /membership": ["member.delete"],
    "POST /oidc/choice": ["console_session.create"],
}
"""Actions in the log, by route."""


def test_every_route_that_changes_something_is_walked() -> None:
    assert set(LEAVES) == {f"{each.method} {each.path}" for each in OPERATIONS if each.method != "GET"}


async def test_every_change_of_ones_own_account_is_in_the_log(town: Town, other_gateway: LoneGateway) -> None:
    email = await town.account(Role.VIEWER)
    walked = set()
    async with town.browser() as browser, town.browser() as elsewhere, town.browser() as guest:

        async def did(
            route: str, body: object = None, /, *, by: Browser = browser, asked: str = "", who: str = email
        ) -> Answer:
            method, _, path = route.partition(" ")
            async with all_audited(town.database) as rows:
                answer = await by.ask(method, f"/console/api{asked or path}", body)
            assert answer.status == 200, (route, answer)
            assert [row["action"] for row in rows] == LEAVES[route], route
            assert all(_named(row, who, answer) for row in rows), route
            walked.add(route)
            return answer

        await did("POST /session", {"email": email, "password": PASSWORD})
        secret = (await did("POST /totp", {"password": PASSWORD})).body["secret"]
        code = pyotp.TOTP(secret).generate_otp(int(time.time() // second_factor.STEP_S))
        await did("POST /totp/confirm", {"code": code})
        codes = (await did("POST /totp/recovery-codes", {"password": PASSWORD})).body["recovery_codes"]
        await did("POST /totp/disable", {"password": PASSWORD, "code": codes[0]})
        await did("POST /password", {"current_password": PASSWORD, "new_password": NEW})
        other = (await elsewhere.sign_in(email, NEW)).signed_in["session"]["id"]
        await did("DELETE /sessions/{session_id}", asked=f"/sessions/{other}")
        await elsewhere.sign_in(email, NEW)
        await did("DELETE /sessions", asked="/sessions?keep_current=true")
        await did("DELETE /session")
        await town.member()  # another owner: the last one may not leave
        member_id, invited = await town.member()
        token = await town.link("invitation", member_id)
        await did("POST /welcome/preview", {"token": token}, by=guest)
        await did("POST /welcome", {"token": token, "password": NEW}, by=guest, who=invited)
        await did("DELETE /membership", by=guest, who=invited)
        known = await town.account(Role.VIEWER)
        await town.database.execute(  # it has signed in by the provider before
            "UPDATE gateway.console_accounts SET oidc_issuer = $1, oidc_subject = $2"
            " WHERE principal_id = (SELECT id FROM gateway.principals WHERE email = $2)",
            *(ISSUER, known),
        )
        there = guest.at(other_gateway.url)
        there.cookies[PROVED] = _proved(town, known)
        organization_id = town.organizations["ours"]
        await did("POST /oidc/choice", {"organization_id": organization_id}, by=there, who=known)
    assert walked == set(LEAVES)


def _proved(town: Town, email: str) -> str:
    """The cookie of a sign-in that has returned from a provider."""
    proved = Proved(ISSUER, email, email, time.time() + 60)
    sealed = seal(town.pepper, f"{USE} Proved", msgspec.json.encode(proved))
    return base64.urlsafe_b64encode(sealed).decode().rstrip("=")


def _named(row: asyncpg.Record, email: str, answer: Answer) -> bool:
    return (row["actor_kind"], row["actor_name"], row["request_id"]) == (
        "member",
        email,
        answer.headers["x-request-id"],
    )
