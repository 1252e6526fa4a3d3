"""One's own account: links that open once, the password, the authenticator, the sessions."""

from __future__ import annotations

import asyncio
import time
from uuid import uuid4

import asyncpg
import pyotp
import pytest

from control.console import second_factor
from storage.roles import Role
from tests.control.console.browser import PASSWORD, Browser, Town
from tests.waiting import eventually

NEW = "quite other words in a row"
SESSION, WELCOME, PREVIEW = "/console/api/session", "/console/api/welcome", "/console/api/welcome/preview"


async def email_of(browser: Browser) -> str:
    email: str = (await browser.ask("GET", SESSION)).signed_in["account"]["email"]
    return email


async def test_the_first_link_makes_the_first_owner_once(town: Town) -> None:
    token = await town.link("first", None)
    await town.database.execute("DELETE FROM gateway.console_accounts")
    email = f"{uuid4().hex}@example.com"
    async with town.browser() as browser:
        preview = await browser.ask("POST", PREVIEW, {"token": token})
        assert (preview.body["kind"], preview.body["email"], preview.body["organization"]) == (
            "first",
            None,
            "operator",
        )
        nameless = await browser.ask("POST", WELCOME, {"token": token, "password": PASSWORD})
        assert (nameless.status, nameless.body["error"]["param"]) == (400, "email")
        made = await browser.ask("POST", WELCOME, {"token": token, "password": PASSWORD, "email": email})
        assert (made.signed_in["role"], made.signed_in["operator"]) == ("owner", True)
        assert (await browser.ask("GET", "/admin/v1/organizations")).status == 200
        assert (await browser.sign_in(email)).status == 200
        again = {"token": await town.link("first", None), "password": PASSWORD, "email": f"{uuid4().hex}@example.com"}
        assert (await browser.ask("POST", WELCOME, again)).code == "invalid_link"  # there is an account by now


async def test_an_invitation_opens_once_and_for_the_member_alone(town: Town) -> None:
    async with town.signed_in() as owner, town.browser() as guest, town.browser() as late:
        email = f"{uuid4().hex}@example.com"
        member = await owner.ask(
            "POST",
            f"/admin/v1/organizations/{town.organizations['ours']}/members",
            {"email": email, "name": "Guest", "role": "viewer"},
        )
        made = await owner.ask("POST", f"/admin/v1/members/{member.body['id']}/console-link")
        assert made.status == 201
        path, _, token = made.body["url"].partition("?token=")
        assert path == "/console/#/welcome"
        preview = (await guest.ask("POST", PREVIEW, {"token": token})).body
        assert (preview["kind"], preview["email"], preview["organization"]) == ("invitation", email, "ours")
        body = {"token": token, "password": PASSWORD, "email": "somebody.else@example.com"}
        signed_in = (await guest.ask("POST", WELCOME, body)).signed_in
        assert (signed_in["account"]["email"], signed_in["role"]) == (email, "viewer")
        assert (await late.ask("POST", WELCOME, body)).code == "invalid_link"
        assert (await late.ask("POST", PREVIEW, {"token": token})).code == "invalid_link"
        second = await owner.ask("POST", f"/admin/v1/members/{member.body['id']}/console-link")
        assert (second.status, second.code) == (409, "conflict")  # nobody gives another person a password
        assert not await town.database.fetch(
            "SELECT FROM gateway.audit_log l WHERE l::text LIKE '%' || $1 || '%'", token
        )


async def test_nobody_invites_somebody_who_may_more_than_themselves(town: Town) -> None:
    owner_id, _ = await town.member(Role.OWNER)
    theirs, _ = await town.member(Role.VIEWER, "theirs")
    async with town.signed_in(Role.ADMIN) as admin, town.signed_in(Role.VIEWER) as viewer:
        assert (await admin.ask("POST", f"/admin/v1/members/{owner_id}/console-link")).code == "permission_denied"
        assert (await admin.ask("POST", f"/admin/v1/members/{theirs}/console-link")).code == "not_found"
        assert (await viewer.ask("POST", f"/admin/v1/members/{owner_id}/console-link")).code == "permission_denied"


async def test_a_link_ends_in_time_with_its_member_and_at_a_bad_password_stays(town: Town) -> None:
    member_id, _ = await town.member()
    disabled_id, _ = await town.member()
    await town.database.execute("UPDATE gateway.principals SET disabled_at = now() WHERE id = $1", disabled_id)
    async with town.browser() as browser:
        for token in (
            await town.link("invitation", member_id, lives="-1 second"),
            await town.link("invitation", disabled_id),
            "never was one",
        ):
            assert (await browser.ask("POST", WELCOME, {"token": token, "password": PASSWORD})).code == "invalid_link"
        token = await town.link("invitation", member_id)
        for weak in ("short words", "aaaaaaaaaaaaaaaa", "ａｂ"):
            refused = await browser.ask("POST", WELCOME, {"token": token, "password": weak})
            assert (refused.status, refused.body["error"]["param"]) == (400, "password")
        assert (await browser.ask("POST", WELCOME, {"token": token, "password": PASSWORD})).status == 200


async def test_a_reset_gives_another_password_and_ends_every_session(town: Town) -> None:
    async with town.signed_in() as before, town.browser() as browser:
        email = await email_of(before)
        member_id = await town.database.fetchval("SELECT id FROM gateway.principals WHERE email = $1", email)
        token = await town.link("reset", member_id)
        assert (await browser.ask("POST", WELCOME, {"token": token, "password": NEW})).status == 200
        assert (await before.ask("GET", "/admin/v1/me")).code == "session_ended"
        assert (await browser.ask("GET", "/admin/v1/me")).status == 200
        assert (await before.sign_in(email)).code == "sign_in_refused"
        assert (await before.sign_in(email, NEW)).status == 200


async def test_a_new_password_ends_all_other_sessions_and_gives_this_one_another_token(town: Town) -> None:
    async with town.signed_in() as browser, town.browser() as elsewhere:
        email = await email_of(browser)
        await elsewhere.sign_in(email)
        before, csrf = dict(browser.cookies), browser.csrf
        body = {"current_password": PASSWORD, "new_password": NEW}
        assert (await browser.ask("POST", "/console/api/password", {**body, "new_password": "short"})).status == 400
        wrong = await browser.ask("POST", "/console/api/password", {**body, "current_password": NEW})
        assert (wrong.status, wrong.code) == (401, "sign_in_refused")
        assert (await browser.ask("POST", "/console/api/password", body)).status == 200
        assert browser.csrf != csrf
        assert (await browser.ask("GET", "/admin/v1/me")).status == 200
        assert (await elsewhere.ask("GET", "/admin/v1/me")).code == "session_ended"
        elsewhere.cookies = before  # what somebody may have learnt of this session
        assert (await elsewhere.ask("GET", "/admin/v1/me")).code == "session_ended"
        assert (await elsewhere.sign_in(email)).code == "sign_in_refused"
        assert (await elsewhere.sign_in(email, NEW)).status == 200


class Authenticator:
    """In force. Codes are told by their step from the one it was confirmed in."""

    def __init__(self, secret: str) -> None:
        self.secret = secret
        self.recovery: list[str] = []
        self._step = int(time.time() // second_factor.STEP_S)

    def code(self, step: int) -> str:
        return pyotp.TOTP(self.secret).generate_otp(self._step + step)


async def enrolled(browser: Browser) -> Authenticator:
    begun = await browser.ask("POST", "/console/api/totp", {"password": PASSWORD})
    found = Authenticator(begun.body["secret"])
    assert f"secret={found.secret}" in begun.body["uri"]
    confirmed = await browser.ask("POST", "/console/api/totp/confirm", {"code": found.code(0)})
    assert confirmed.status == 200, confirmed
    found.recovery = confirmed.body["recovery_codes"]
    return found


async def test_an_authenticator_is_asked_for_and_takes_no_code_twice(town: Town) -> None:
    async with town.signed_in() as browser, town.browser() as elsewhere:
        email, token = await email_of(browser), browser.token
        wrong = await browser.ask("POST", "/console/api/totp", {"password": NEW})
        assert wrong.code == "sign_in_refused"
        own = await enrolled(browser)
        assert browser.token != token
        await town.database.execute("DELETE FROM gateway.console_attempts")
        for code in (None, "00000x", own.code(0), own.code(5)):
            answer = await elsewhere.sign_in(email, totp=code) if code else await elsewhere.sign_in(email)
            assert (answer.status, answer.code) == (401, "totp_required"), code
        await town.database.execute("DELETE FROM gateway.console_attempts")
        assert (await elsewhere.sign_in(email, totp=own.code(1))).status == 200
        assert (await elsewhere.sign_in(email, totp=own.code(1))).code == "totp_required"
        assert (await elsewhere.sign_in(email, NEW, totp=own.recovery[1])).code == "sign_in_refused"
        spaced = own.recovery[0].replace("-", " ").upper()
        assert (await elsewhere.sign_in(email, totp=spaced)).signed_in["account"]["recovery_codes_left"] == 9
        assert (await elsewhere.sign_in(email, totp=own.recovery[0])).code == "totp_required"


async def test_to_be_asked_for_a_code_is_no_attempt_that_failed(town: Town) -> None:
    """Fault: the page sends the code in a second request, so people with an authenticator locked their network."""
    async with town.signed_in() as browser, town.browser() as elsewhere:
        email = await email_of(browser)
        await enrolled(browser)
        await town.database.execute("DELETE FROM gateway.console_attempts")
        assert [(await elsewhere.sign_in(email)).code for _ in range(6)] == ["totp_required"] * 6
        counts = await town.database.fetch("SELECT failures FROM gateway.console_attempts")
        assert [row["failures"] for row in counts] == [0, 0]
        assert (await elsewhere.sign_in(email, NEW)).code == "sign_in_refused"
        assert await town.database.fetchval("SELECT min(failures) FROM gateway.console_attempts") == 1


async def test_an_authenticator_is_disabled_by_password_and_code_only(town: Town) -> None:
    path = "/console/api/totp/disable"
    async with town.signed_in() as browser:
        email = await email_of(browser)
        await enrolled(browser)
        assert (await browser.ask("POST", "/console/api/totp", {"password": PASSWORD})).code == "conflict"
        codes = (await browser.ask("POST", "/console/api/totp/recovery-codes", {"password": PASSWORD})).body
        (first, *_) = codes["recovery_codes"]
        assert (await browser.ask("POST", path, {"password": NEW, "code": first})).code == "sign_in_refused"
        assert (await browser.ask("POST", path, {"password": PASSWORD, "code": "00000x"})).code == "totp_required"
        off = await browser.ask("POST", path, {"password": PASSWORD, "code": first})
        assert off.signed_in["account"]["totp"] is False
        assert (await browser.sign_in(email)).status == 200


async def test_a_reset_does_not_go_round_the_authenticator(town: Town) -> None:
    async with town.signed_in() as browser, town.browser() as elsewhere:
        email = await email_of(browser)
        own = await enrolled(browser)
        member_id = await town.database.fetchval("SELECT id FROM gateway.principals WHERE email = $1", email)
        body = {"token": await town.link("reset", member_id), "password": NEW}
        assert (await elsewhere.ask("POST", WELCOME, body)).signed_in is None
        assert "slipstream-session" not in elsewhere.cookies
        assert (await elsewhere.sign_in(email, NEW)).code == "totp_required"
        assert (await elsewhere.sign_in(email, NEW, totp=own.recovery[0])).status == 200


@pytest.mark.parametrize("totp", [False, True])
async def test_from_a_reset_on_the_password_before_it_opens_nothing(totp: bool, town: Town) -> None:
    """Its authenticator may be forgotten by then, and whoever stole the password comes before the link is used."""
    async with town.signed_in() as browser, town.browser() as thief:
        email = await email_of(browser)
        await enrolled(browser)
        token = await town.reset(email, totp=totp)
        assert (await thief.sign_in(email)).code == "sign_in_refused"
        welcomed = await browser.ask("POST", WELCOME, {"token": token, "password": NEW})
        assert (welcomed.signed_in is None) is not totp
        assert (await thief.sign_in(email)).code == "sign_in_refused"
        assert (await thief.sign_in(email, NEW)).status == (200 if totp else 401)


async def test_what_is_under_way_while_an_account_is_reset_neither_signs_in_nor_changes_it(
    town: Town, console_postgres_url: str
) -> None:
    """A hash waits its turn for seconds while many sign in: what it proves may be over by then."""
    async with town.signed_in() as thief, town.browser() as elsewhere:
        email = await email_of(thief)
        asked = (
            thief.ask("POST", "/console/api/password", {"current_password": PASSWORD, "new_password": NEW}),
            thief.ask("POST", "/console/api/totp", {"password": PASSWORD}),
            elsewhere.sign_in(email),
        )
        waiting = (
            "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"
        )
        watcher = await asyncpg.connect(console_postgres_url)
        try:
            async with town.database.transaction():
                await town.reset(email)
                under_way = [asyncio.create_task(each) for each in asked]

                async def all_wait() -> bool:
                    assert not [each for each in under_way if each.done()]
                    return bool(await watcher.fetchval(waiting) == len(asked))

                await eventually(all_wait)
        finally:
            await watcher.close()
        changed, begun, entered = await asyncio.gather(*under_way)
        assert (changed.code, begun.code, entered.code) == ("session_ended", "session_ended", "sign_in_refused")
        account = await town.database.fetchrow(
            "SELECT account.* FROM gateway.console_accounts account JOIN gateway.principals p ON p.id = principal_id"
            " WHERE email = $1",
            email,
        )
        assert (account["password_hash"], account["totp_secret"]) == (None, None)


async def test_guesses_at_a_code_are_held_back_like_those_at_a_password(town: Town) -> None:
    async with town.signed_in() as browser, town.browser() as elsewhere:
        email = await email_of(browser)
        await enrolled(browser)
        await town.database.execute("DELETE FROM gateway.console_attempts")
        answers = [await elsewhere.sign_in(email, totp=f"{number:05}x") for number in range(6)]
        assert [answer.status for answer in answers] == [401] * 5 + [429]


async def test_what_an_authenticator_knows_is_stored_sealed(town: Town) -> None:
    async with town.signed_in() as browser:
        own = await enrolled(browser)
        for table in ("console_accounts", "audit_log"):
            text = str(await town.database.fetch(f"SELECT t::text FROM gateway.{table} t"))
            for plain in (own.secret, *own.recovery, PASSWORD):
                assert plain not in text
                assert plain.encode().hex() not in text


async def test_ones_sessions_are_listed_and_ended_by_oneself_alone(town: Town) -> None:
    path = "/console/api/sessions"
    async with town.signed_in() as browser, town.browser() as elsewhere, town.signed_in() as other:
        email = await email_of(browser)
        await elsewhere.sign_in(email)
        listed = (await browser.ask("GET", path)).body["data"]
        assert [each["current"] for each in listed] == [False, True]
        there = listed[0]["id"]
        assert listed[0]["network"] == elsewhere.address
        assert (await other.ask("DELETE", f"{path}/{there}")).code == "not_found"
        assert (await browser.ask("DELETE", f"{path}/none")).code == "not_found"
        assert (await browser.ask("DELETE", f"{path}/{there}")).body == {"id": there, "deleted": True}
        assert (await elsewhere.ask("GET", "/admin/v1/me")).code == "session_ended"
        await elsewhere.sign_in(email)
        assert (await browser.ask("DELETE", f"{path}?keep_current=true")).body == {"ended": 1}
        assert (await elsewhere.ask("GET", "/admin/v1/me")).code == "session_ended"
        await elsewhere.sign_in(email)
        assert (await browser.ask("DELETE", path)).body == {"ended": 2}
        for each in (browser, elsewhere):
            assert (await each.ask("GET", path)).code == "session_ended"
        assert (await other.ask("GET", "/admin/v1/me")).status == 200


@pytest.mark.parametrize("now_s", [0.0, 29.9, 30.0, 1_700_000_000.0])
def test_a_code_is_of_the_step_before_this_or_the_next_and_of_no_other(now_s: float) -> None:
    secret, step = second_factor.new_secret(), int(now_s // 30) + 10
    now_s += 300
    for off in range(-4, 5):
        code = pyotp.TOTP(secret).generate_otp(step + off)
        assert second_factor.step_of(secret, code, now_s) == (step + off if abs(off) <= 1 else None)
