"""Signing in by a password: the cookie, the token, what is refused, and that nothing tells who has an account."""

from __future__ import annotations

import asyncio
from datetime import datetime
from uuid import uuid4

import pytest

from control.console.attempts import Subject
from storage.roles import PERMISSIONS, Role
from tests.control.api.lone_gateway import LoneGateway
from tests.control.console.browser import ANYWHERE, PASSWORD, Town
from tests.control.console.quick_passwords import UNHEARD


async def test_who_signs_in_is_told_who_they_are_and_what_they_may(town: Town) -> None:
    email = await town.account(Role.DEVELOPER)
    async with town.browser() as browser:
        nobody = await browser.ask("GET", "/console/api/session")
        provider = {"name": "single sign-on", "start": "/console/api/oidc/start"}
        assert nobody.body == {"signed_in": None, "methods": {"password": True, "oidc": provider}}
        signed_in = (await browser.sign_in(email.upper())).signed_in
        assert signed_in["account"]["email"] == email
        assert signed_in["organization"] == {"id": str(town.organizations["ours"]), "name": "ours"}
        assert (signed_in["role"], signed_in["operator"]) == ("developer", False)
        assert set(signed_in["permissions"]) == set(PERMISSIONS[Role.DEVELOPER])
        assert signed_in["currency"] == (await browser.ask("GET", "/admin/v1/me")).body["currency"] == "USD"
        assert signed_in["session"]["network"] == browser.address
        again = await browser.ask("GET", "/console/api/session")
        assert again.signed_in["csrf_token"] == signed_in["csrf_token"]
        me = await browser.ask("GET", "/admin/v1/me")
        assert me.body["session_id"] == signed_in["session"]["id"]
        assert me.body["key_id"] is None


@pytest.mark.parametrize("secure", [False, True])
async def test_the_cookie_is_closed_to_scripts_other_sites_and_other_hosts(secure: bool, town: Town) -> None:
    email = await town.account()
    async with town.browser(secure=secure) as browser:
        answer = await browser.sign_in(email)
        ((name, cookie),) = answer.cookies.items()
        assert name == ("__Host-slipstream-session" if secure else "slipstream-session")
        assert cookie["httponly"] == "True"
        assert cookie["samesite"].lower() == "lax"
        assert cookie["path"] == "/"
        assert "domain" not in cookie
        assert cookie.get("secure") == ("True" if secure else None)
        assert answer.headers["cache-control"] == "no-store"
        assert (await browser.ask("GET", "/admin/v1/me")).status == 200
        if secure:  # what somebody planted without TLS counts for nothing
            planted = {"slipstream-session": browser.token}
            browser.cookies = planted
            assert (await browser.ask("GET", "/admin/v1/me")).code == "missing_api_key"


async def test_only_a_hash_of_the_token_is_stored(town: Town) -> None:
    async with town.signed_in() as browser:
        random = browser.token.partition(".")[0]
        rows = await town.database.fetch("SELECT console_sessions::text AS row FROM gateway.console_sessions")
        assert rows
        assert not [row for row in rows if random in row["row"] or random.encode().hex() in row["row"]]


async def test_a_session_that_was_there_before_signing_in_is_worth_nothing_after_it(town: Town) -> None:
    """Fixation: somebody plants a session of theirs, or knows the one that was there."""
    victim = await town.account()
    async with town.signed_in() as attacker, town.browser() as browser:
        browser.cookies = dict(attacker.cookies)
        planted = browser.token
        assert (await browser.sign_in(victim)).signed_in["account"]["email"] == victim
        assert browser.token != planted
        assert (await attacker.ask("GET", "/admin/v1/me")).code == "session_ended"


async def test_a_token_that_was_made_up_is_none(town: Town) -> None:
    async with town.browser() as browser:
        for made_up in ("x", "x.y", f"{'a' * 43}.{'b' * 22}", "é"):
            browser.cookies = {"slipstream-session": made_up}
            assert (await browser.ask("GET", "/admin/v1/me")).code == "session_ended"
            assert (await browser.ask("GET", "/console/api/session")).signed_in is None


async def test_a_wrong_password_no_account_and_no_such_person_get_the_same_answer_after_the_same_time(
    town: Town,
) -> None:
    known = await town.account()
    _, without = await town.member()
    loop, answers = asyncio.get_running_loop(), []
    async with town.browser() as browser:
        for email in (known, without, f"{uuid4().hex}@example.com"):
            began = loop.time()
            answer = await browser.sign_in(email, "wrong words in a row")
            answers.append((answer.status, answer.body, set(answer.headers) - {"date"}))
            assert loop.time() - began >= 0.5  # which no path to a refusal comes near by itself
    assert answers[0] == answers[1] == answers[2]
    assert answers[0][0] == 401
    assert answers[0][1]["error"]["code"] == "sign_in_refused"


@pytest.mark.parametrize("exists", [True, False])
async def test_attempts_that_fail_cost_pauses_whether_or_not_there_is_an_account(exists: bool, town: Town) -> None:
    email = await town.account() if exists else f"{uuid4().hex}@example.com"
    async with town.browser() as browser, town.browser() as elsewhere:
        together = await asyncio.gather(*(browser.sign_in(email, "wrong words in a row") for _ in range(8)))
        codes = sorted(answer.code for answer in together)
        assert codes == ["rate_limit_exceeded"] * 3 + ["sign_in_refused"] * 5, codes
        # from anywhere, by the right password too
        answer = await elsewhere.sign_in(email)
        assert (answer.status, answer.code) == (429, "rate_limit_exceeded")
        assert int(answer.headers["retry-after"]) >= 1


async def test_pauses_double_and_end(town: Town) -> None:
    email = await town.account()
    pauses = []
    async with town.browser() as browser:
        for _ in range(7):
            await browser.sign_in(email, "wrong words in a row")
            pause = await town.database.fetchval(
                "SELECT extract(epoch FROM locked_until - last_at)::float8 FROM gateway.console_attempts"
                " WHERE subject = $1",
                Subject.address(town.pepper, email).key,
            )
            pauses.append(round(pause))
            await town.database.execute("UPDATE gateway.console_attempts SET locked_until = now()")
        assert pauses == [0, 0, 0, 0, 10, 20, 40]
        assert (await browser.sign_in(email)).status == 200
        await browser.sign_in(email, "wrong words in a row")  # and begins anew
        assert (await browser.sign_in(email)).status == 200


async def test_one_network_that_tries_many_addresses_is_held_back(town: Town) -> None:
    async with town.browser() as browser, town.browser() as elsewhere:
        network = Subject.network(town.pepper, browser.address)
        await town.database.execute(
            "INSERT INTO gateway.console_attempts VALUES ($1, $2, now(), now())", network.key, network.free - 2
        )
        tried = [await browser.sign_in(f"{uuid4().hex}@example.com", "wrong words in a row") for _ in range(3)]
        assert [answer.status for answer in tried] == [401, 401, 429]
        assert (await elsewhere.sign_in(await town.account())).status == 200


async def test_who_signs_in_makes_no_others_of_the_network_wait(town: Town) -> None:
    """Fault: after many failures from an office, each sign-in locked it for up to 15 minutes."""
    async with town.browser() as browser:
        network = Subject.network(town.pepper, browser.address)
        await town.database.execute(
            "INSERT INTO gateway.console_attempts VALUES ($1, $2, now(), now())", network.key, network.free + 5
        )
        for _ in range(3):
            assert (await browser.sign_in(await town.account())).status == 200
        assert (await browser.sign_in(await town.account(), "wrong words in a row")).status == 401
        assert (await browser.sign_in(await town.account())).status == 429


async def test_an_attempt_from_a_network_in_its_pause_counts_nothing_against_the_address(town: Town) -> None:
    """Fault: who tried again from an office that had to wait was locked out everywhere, by the right password."""
    email = await town.account()
    async with town.browser() as browser, town.browser() as elsewhere:
        await town.database.execute(
            "INSERT INTO gateway.console_attempts VALUES ($1, 30, now(), now() + interval '15 minutes')",
            Subject.network(town.pepper, browser.address).key,
        )
        assert [(await browser.sign_in(email)).status for _ in range(6)] == [429] * 6
        assert (await elsewhere.sign_in(email)).status == 200


async def test_the_owner_of_one_organization_cannot_forgive_attempts_on_another(town: Town) -> None:
    email = await town.account(organization="operator")
    hashed = await town.passwords.hash("the attacker's own words", ANYWHERE)
    member_id, _ = await town.member(organization="theirs", email=email)
    await town.database.execute(
        "INSERT INTO gateway.console_accounts (principal_id, password_hash) VALUES ($1, $2)", member_id, hashed
    )
    async with town.browser() as browser:
        answers = []
        for _ in range(5):
            answers.append((await browser.sign_in(email, "a guess at the password")).status)
            answers.append((await browser.sign_in(email, "the attacker's own words")).status)
        assert 429 in answers


async def test_who_signs_in_often_by_an_address_of_two_organizations_is_not_held_back(town: Town) -> None:
    """Any tenant can add somebody's address, and open the link itself."""
    email = await town.account()
    hashed = await town.passwords.hash("another tenant's own words", ANYWHERE)
    member_id, _ = await town.member(organization="theirs", email=email)
    await town.database.execute(
        "INSERT INTO gateway.console_accounts (principal_id, password_hash) VALUES ($1, $2)", member_id, hashed
    )
    async with town.browser() as browser:
        assert [(await browser.sign_in(email)).status for _ in range(7)] == [200] * 7


async def test_an_address_in_two_organizations_says_which(town: Town) -> None:
    email = await town.account()
    await town.account(Role.VIEWER, "theirs", email)
    async with town.browser() as browser:
        which = await browser.sign_in(email)
        assert (which.status, which.code, which.body["error"]["param"]) == (409, "conflict", "organization_id")
        for name in ("ours", "theirs"):
            assert str(town.organizations[name]) in which.body["error"]["message"]
            chosen = await browser.sign_in(email, organization_id=town.organizations[name])
            assert chosen.signed_in["organization"]["name"] == name
        wrong = await browser.sign_in(email, organization_id=town.organizations["operator"])
        assert wrong.code == "sign_in_refused"
        again = [(await browser.sign_in(email)).status for _ in range(7)]
        assert again == [409] * 7, "to be asked which is no attempt that failed"


async def test_a_disabled_member_neither_signs_in_nor_goes_on(town: Town) -> None:
    email = await town.account()
    async with town.browser() as browser:
        assert (await browser.sign_in(email)).status == 200
        await town.database.execute("UPDATE gateway.principals SET disabled_at = now() WHERE email = $1", email)
        assert (await browser.ask("GET", "/admin/v1/me")).code == "tenant_disabled"
        assert (await browser.ask("GET", "/console/api/session")).signed_in is None
        assert (await browser.sign_in(email)).code == "tenant_disabled"
        assert (await browser.sign_in(email, PASSWORD + "!")).code == "sign_in_refused"


async def test_a_session_is_one_of_every_gateway_and_ends_on_all_at_once(
    town: Town, other_gateway: LoneGateway
) -> None:
    async with town.signed_in() as browser:
        there = browser.at(other_gateway.url)
        assert (await there.ask("GET", "/admin/v1/me")).status == 200
        copied = dict(browser.cookies)
        assert (await browser.ask("DELETE", "/console/api/session")).signed_in is None
        assert not browser.cookies
        there.cookies = copied
        assert (await there.ask("GET", "/admin/v1/me")).code == "session_ended"


async def test_who_is_let_in_again_signs_in_again(town: Town) -> None:
    email = await town.account(Role.DEVELOPER)
    async with town.browser() as browser, town.signed_in() as owner:
        member_id = (await browser.sign_in(email)).signed_in["account"]["member_id"]
        for disabled in (True, False):
            answer = await owner.ask("PATCH", f"/admin/v1/members/{member_id}", {"disabled": disabled})
            assert answer.status == 200
        assert (await browser.ask("GET", "/admin/v1/me")).code == "session_ended"


async def test_what_an_open_page_asks_by_itself_keeps_no_session(town: Town) -> None:
    async def seen(session_id: str) -> datetime:
        stated: datetime = await town.database.fetchval(
            "SELECT last_seen_at FROM gateway.console_sessions WHERE id = $1", session_id
        )
        return stated

    async with town.signed_in() as browser:
        session_id = (await browser.ask("GET", "/console/api/session")).signed_in["session"]["id"]
        await town.database.execute(
            "UPDATE gateway.console_sessions SET last_seen_at = now() - interval '30 minutes' WHERE id = $1", session_id
        )
        before = await seen(session_id)
        assert (await browser.ask("GET", "/admin/v1/me", X_Slipstream_Background="true")).status == 200
        assert await seen(session_id) == before
        assert (await browser.ask("GET", "/admin/v1/me")).status == 200
        assert await seen(session_id) > before


async def test_a_password_that_nobody_looked_at_is_no_failed_attempt(town: Town) -> None:
    """More sign in at once than may wait for a hash."""
    email = await town.account()

    async def failures(subject: Subject) -> int:
        found: int | None = await town.database.fetchval(
            "SELECT failures FROM gateway.console_attempts WHERE subject = $1", subject.key
        )
        return found or 0

    address = Subject.address(town.pepper, email)
    async with town.browser() as browser:
        network = Subject.network(town.pepper, browser.address)
        assert (await browser.sign_in(email, "wrong words in a row")).status == 401
        assert await failures(address) == 1
        of_network = await failures(network)
        answer = await browser.sign_in(email, UNHEARD)
        assert (answer.status, answer.headers["retry-after"]) == (503, "2")
        assert await failures(address) == 1
        assert await failures(network) == of_network + 1  # or strangers would ask again for nothing


@pytest.mark.parametrize(
    "past", ["expires_at = now()", "last_seen_at = now() - interval '1 hour'"], ids=["lifetime", "idle"]
)
async def test_a_session_ends_in_time(past: str, town: Town) -> None:
    async with town.signed_in() as browser:
        session_id = (await browser.ask("GET", "/console/api/session")).signed_in["session"]["id"]
        await town.database.execute(f"UPDATE gateway.console_sessions SET {past} WHERE id = $1", session_id)
        assert (await browser.ask("GET", "/admin/v1/me")).code == "session_ended"
        assert (await browser.ask("POST", "/console/api/totp", {"password": PASSWORD})).code == "session_ended"
        assert (await browser.ask("GET", "/console/api/session")).signed_in is None
