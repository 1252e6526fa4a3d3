"""Signing in by a real provider of identities, over its real pages: oidc-provider under node."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
from collections.abc import AsyncIterator
from http.cookies import SimpleCookie
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit, urlunsplit
from uuid import uuid4

import msgspec
import pytest

from control.console.oidc.identity import ProviderUnavailable
from control.console.oidc.provider import Provider, verified_email
from control.sessions.config import OidcConfig
from storage.roles import Role
from tests.control.api.lone_gateway import LoneGateway
from tests.control.console.browser import Answer, Browser, Town
from tests.deployment import free_port

PROVIDER = Path(__file__).parent / "provider"
START, CALLBACK, SESSION = "/console/api/oidc/start", "/console/api/oidc/callback", "/console/api/session"
GUARD_S = 60.0
with_node = pytest.mark.system
"""The provider runs under Node, which the gate does not have."""
PEOPLE: dict[str, dict[str, object]] = {
    "ada": {"email": "ada@example.com", "email_verified": True, "name": "Ada", "groups": ["everybody", "platform"]},
    "moved": {"email": "moved@example.com", "email_verified": True, "groups": ["accounts", "platform"]},
    "tenant": {"email": "tenant@example.com", "email_verified": True, "groups": ["tenants"]},
    "unverified": {"email": "unverified@example.com", "email_verified": False, "groups": ["platform"]},
    "stranger": {"email": "stranger@example.com", "email_verified": True, "groups": ["others"]},
    "namesake": {"email": "ada@example.com", "email_verified": True, "groups": ["platform"]},
}


@pytest.mark.parametrize(
    ("token", "user_info", "address"),
    [
        ({"email": "a@x.example", "email_verified": True}, {}, "a@x.example"),
        ({"email": "a@x.example"}, {"email": "a@x.example", "email_verified": "true"}, "a@x.example"),
        ({"email": "ceo@x.example"}, {"email": "a@x.example", "email_verified": True}, "a@x.example"),
        ({"email": "ceo@x.example"}, {"email_verified": True}, None),
        ({"email_verified": True}, {"email": "ceo@x.example"}, None),
        ({"email": "a@x.example", "email_verified": False}, {}, None),
        ({"email": ["a@x.example"], "email_verified": True}, {}, None),
    ],
)
def test_an_address_is_verified_where_it_is_told(
    token: dict[str, object], user_info: dict[str, object], address: str | None
) -> None:
    assert verified_email(token, user_info) == address


def require_node() -> str:
    """Where node is; fails or skips the test when it or the provider is missing."""
    node = shutil.which("node")
    missing = "node" if node is None else None
    if missing is None and not (PROVIDER / "node_modules").is_dir():
        missing = f"`npm ci --ignore-scripts` in {PROVIDER}"
    if missing is None:
        assert node is not None
        return node
    if os.environ.get("TEST_NODE") == "required":
        pytest.fail(f"provider of identities: {missing} is missing")
    pytest.skip(f"SIGNING IN BY A PROVIDER NOT TESTED: {missing} is missing")


@contextlib.asynccontextmanager
async def provider_for(redirect_uri: str, port: int = 0) -> AsyncIterator[str]:
    """Its issuer."""
    process = await asyncio.create_subprocess_exec(
        require_node(), "provider.mjs", redirect_uri, str(port), msgspec.json.encode(PEOPLE).decode(),
        cwd=PROVIDER, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL, start_new_session=True,
    )  # fmt: skip
    assert process.stdout is not None
    try:
        async with asyncio.timeout(GUARD_S):
            issuer = (await process.stdout.readline()).decode().strip()
        assert issuer, "the provider ended"
        yield issuer
    finally:
        # the wheel's `node` is a Python program with the real one as its child, which would keep the pipe open
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        await process.wait()


@pytest.fixture(scope="module")
async def sso(town: Town) -> AsyncIterator[Town]:
    """With the provider that the gateway's settings name."""
    async with provider_for(f"{town.url}{CALLBACK}", town.provider_port):
        yield town


class Journey:
    """One browser on its way to the provider and back."""

    def __init__(self, browser: Browser) -> None:
        self.browser = browser
        self._cookies: dict[str, str] = {}
        self.address = ""
        """At the provider."""

    async def leave(self, target: str = "") -> None:
        answer = await self.browser.ask("GET", START + (f"?next={target}" if target else ""))
        assert answer.status == 302, answer
        self.address = answer.headers["location"]

    async def answer(self, name: str) -> str:
        """Sign in at the provider; the address of ours that it sends the browser to."""
        address = self.address
        while not urlsplit(address).path.startswith("/console/"):
            parts = urlsplit(address)
            if parts.path.startswith("/ask/"):
                address = urlunsplit(parts._replace(query=f"as={name}"))
            header = "; ".join(f"{key}={value}" for key, value in self._cookies.items())
            async with self.browser.session.get(address, headers={"cookie": header}, allow_redirects=False) as response:
                assert response.status in (302, 303), (address, await response.text())
                for text in response.headers.getall("set-cookie", []):
                    cookie: SimpleCookie = SimpleCookie(text)
                    self._cookies |= {key: morsel.value for key, morsel in cookie.items()}
                location = response.headers["location"]
            address = location if "://" in location else urlunsplit((parts.scheme, parts.netloc, location, "", ""))
        return address

    async def arrive(self, address: str, browser: Browser | None = None) -> Answer:
        parts = urlsplit(address)
        return await (browser or self.browser).ask(
            "GET", f"{parts.path}?{parts.query}", sec_fetch_site="cross-site", sec_fetch_mode="navigate"
        )


async def signed_in_as(browser: Browser, name: str, target: str = "") -> Answer:
    journey = Journey(browser)
    await journey.leave(target)
    return await journey.arrive(await journey.answer(name))


async def who(browser: Browser) -> dict[str, Any]:
    return (await browser.ask("GET", SESSION)).signed_in


@with_node
async def test_a_group_makes_somebody_what_the_settings_say(sso: Town) -> None:
    async with sso.browser() as browser:
        offered = (await browser.ask("GET", SESSION)).body["methods"]["oidc"]
        assert offered == {"name": "single sign-on", "start": START}
        answer = await signed_in_as(browser, "ada", "/console/usage?group_by=model")
        assert (answer.status, answer.headers["location"]) == (302, "/console/usage?group_by=model")
        assert not answer.cookies["slipstream-oidc"]["value"]
        signed_in = await who(browser)
        assert (signed_in["role"], signed_in["operator"]) == ("admin", True)
        assert signed_in["account"]["email"] == "ada@example.com"
        assert signed_in["account"]["has_password"] is False
        assert signed_in["session"]["method"] == "oidc"
        assert (await browser.ask("GET", "/admin/v1/organizations")).status == 200
        member_id = signed_in["account"]["member_id"]
        actors = await sso.database.fetch(
            "SELECT action, actor_kind FROM gateway.audit_log WHERE subject_id = $1 OR after->>'member_id' = $1"
            " ORDER BY id",
            member_id,
        )
        assert [tuple(row) for row in actors] == [
            ("member.create", "system"),
            ("console_account.create", "system"),
            ("console_session.create", "member"),
        ]


@with_node
async def test_a_group_of_a_tenant_leads_to_that_tenant_alone(sso: Town) -> None:
    async with sso.browser() as browser:
        await signed_in_as(browser, "tenant")
        signed_in = await who(browser)
        assert (signed_in["organization"]["name"], signed_in["role"]) == ("ours", "viewer")
        theirs = f"/admin/v1/organizations/{sso.organizations['theirs']}"
        assert (await browser.ask("GET", theirs)).code == "not_found"


@with_node
async def test_another_group_is_another_role_at_the_next_sign_in(sso: Town) -> None:
    await sso.member(Role.OWNER, "operator")  # another one: the last owner stays one
    member_id, _ = await sso.member(Role.OWNER, "operator", "moved@example.com")
    async with sso.browser() as browser:
        await signed_in_as(browser, "moved")
        signed_in = await who(browser)
        assert (signed_in["account"]["member_id"], signed_in["role"]) == (str(member_id), "billing")


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("stranger", "oidc_no_role"),
        ("unverified", "oidc_no_member"),
        ("nobody", "oidc_denied"),
    ],
)
@with_node
async def test_who_may_not_come_in_is_sent_to_the_sign_in_page(name: str, why: str, sso: Town) -> None:
    async with sso.browser() as browser:
        answer = await signed_in_as(browser, name)
        assert answer.headers["location"] == f"/console/#/sign-in?error={why}"
        assert "slipstream-session" not in browser.cookies


@with_node
async def test_who_was_given_anothers_address_is_not_that_other(sso: Town) -> None:
    async with sso.browser() as browser:
        await signed_in_as(browser, "ada")
        assert (await signed_in_as(browser, "namesake")).headers["location"].endswith("?error=oidc_other_person")


@pytest.mark.parametrize("target", ["https://evil.example/", "/console/%252e%252e/x", "/console/%0d%0aset-cookie:x=y"])
@with_node
async def test_nobody_is_led_away_from_here(target: str, sso: Town) -> None:
    """test_pages.py has the other spellings."""
    async with sso.browser() as browser:
        answer = await signed_in_as(browser, "ada", target)
        location = answer.headers["location"]
        assert location.startswith("/console/")
        assert not location.startswith("/console//")
        assert "evil" not in location or target.startswith("/console/%252e")


@with_node
async def test_what_goes_to_the_provider_binds_the_code_to_this_browser(sso: Town) -> None:
    async with sso.browser() as browser:
        journey = Journey(browser)
        await journey.leave()
        sent = {name: values[0] for name, values in parse_qs(urlsplit(journey.address).query).items()}
        assert sent["code_challenge_method"] == "S256"
        assert len(sent["code_challenge"]) == 43
        assert len(sent["state"]) >= 32
        assert len(sent["nonce"]) >= 32
        assert sent["response_type"] == "code"
        assert not [name for name in ("state", "nonce") if sent[name] in str(browser.cookies)]  # sealed


@with_node
async def test_a_code_works_once_in_the_browser_that_asked_with_the_state_it_was_given(sso: Town) -> None:
    """Signing a victim in as the attacker: the attacker's code and state, in the victim's browser."""
    async with sso.browser() as attacker, sso.browser() as victim:
        journey = Journey(attacker)
        await journey.leave()
        address = await journey.answer("ada")
        expired = "/console/#/sign-in?error=oidc_expired"
        assert (await journey.arrive(address, victim)).headers["location"] == expired
        other = Journey(victim)
        await other.leave()  # so that it has a cookie of its own
        assert (await journey.arrive(address, victim)).headers["location"] == expired
        assert "slipstream-session" not in victim.cookies

        kept = dict(attacker.cookies)
        assert (await journey.arrive(address)).headers["location"] == "/console/"
        assert (await journey.arrive(address)).headers["location"] == expired  # its cookie is gone
        attacker.cookies = kept
        replayed = await journey.arrive(address)  # and the provider takes no code twice
        assert replayed.headers["location"] == "/console/#/sign-in?error=oidc_failed"


@with_node
async def test_a_session_that_was_planted_before_is_not_the_one_after(sso: Town) -> None:
    async with sso.browser() as browser, sso.browser() as attacker:
        await signed_in_as(attacker, "tenant")
        browser.cookies = dict(attacker.cookies)
        planted = browser.token
        await signed_in_as(browser, "ada")
        assert browser.token != planted
        assert (await attacker.ask("GET", "/admin/v1/me")).code == "session_ended"


async def test_a_provider_that_is_away_or_another_is_said() -> None:
    async def refused(issuer: str) -> None:
        provider = Provider(OidcConfig(issuer=issuer, client_id="slipstream"), {})
        with pytest.raises(ProviderUnavailable):
            await provider.address("http://here/console/api/oidc/callback", "state", "nonce", "v" * 43)
        await provider.stop()

    await refused(f"http://127.0.0.1:{free_port()}")
    async with provider_for("http://127.0.0.1:1/") as issuer:
        await refused(issuer.replace("127.0.0.1", "localhost"))  # it says another name of itself


async def test_where_there_is_no_provider_there_is_no_way_to_one(town: Town, other_gateway: LoneGateway) -> None:
    async with town.browser() as browser:
        there = browser.at(other_gateway.url)
        assert (await there.ask("GET", SESSION)).body["methods"]["oidc"] is None
        for path in (START, f"{CALLBACK}?state={uuid4()}&code=x"):
            assert (await there.ask("GET", path)).status == 404
