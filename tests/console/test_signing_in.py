"""The sign-in page in a real browser: a second factor's code and recovery code, and a real provider of identities."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import aiohttp
import asyncpg
import msgspec
import pyotp
import pytest
from playwright.async_api import Browser

from storage.roles import Role
from tests.console.administered import window_of
from tests.console.pages import ANY_HOME, Console, expect, made, seen_by
from tests.control.api.lone_gateway import lone_gateway
from tests.control.api.people import People
from tests.control.console.test_oidc import CALLBACK, provider_for, require_node
from tests.deployment import free_port

PASSWORD = "another four words here"


async def fill_in(console: Console, email: str) -> None:
    """The form of the sign-in page."""
    await console.page.goto(f"{console.url}/console/sign-in")
    await console.page.get_by_label("Email").fill(email)
    await console.page.get_by_label("Password").fill(PASSWORD)
    await console.page.get_by_role("button", name="Sign in").click()


async def test_a_second_factor_is_asked_for_and_a_recovery_code_opens_once(browser: Browser, people: People) -> None:
    administrator = await people.principal("ours", Role.OWNER)
    member = await people.principal("ours", Role.DEVELOPER)
    email = await people.database.fetchval("SELECT email FROM gateway.principals WHERE id = $1", member)
    async with window_of(browser, people, administrator) as console:
        await console.go("/account")
        link = await made(console, f"/members/{member}/console-link")
    async with seen_by(browser, people.url) as console:
        page = console.page
        await page.goto(people.url + link["url"])
        await page.get_by_label("Password", exact=True).fill(PASSWORD)
        await page.get_by_label("Repeat the password").fill(PASSWORD)
        await page.get_by_role("button", name="Begin").click()
        await page.wait_for_url(ANY_HOME)
        await console.go("/account")
        await page.get_by_role("button", name="Turn on").click()
        dialog = page.get_by_role("dialog")
        await dialog.get_by_label("Your password").fill(PASSWORD)
        await dialog.get_by_role("button", name="Go on").click()
        key = await dialog.locator(".secret code").inner_text()
        await dialog.get_by_label("The code it shows").fill(pyotp.TOTP(key).now())
        await dialog.get_by_role("button", name="Turn on").click()
        codes = (await page.get_by_role("region", name="Recovery codes").inner_text()).split()
    # what was shown once is taken once: of the step that turned it on there is no other code
    await people.database.execute(
        "UPDATE gateway.console_accounts SET totp_last_step = NULL WHERE principal_id = $1", member
    )
    async with seen_by(browser, people.url) as console:
        page = console.page
        await fill_in(console, email)
        code = page.get_by_label("Code from your second factor")
        await expect(code).to_be_focused()
        await console.expect_no_faults("a second factor is asked for")
        await code.fill("000000" if pyotp.TOTP(key).now() != "000000" else "000001")
        await page.get_by_role("button", name="Sign in").click()
        await page.get_by_role("alert").wait_for()
        assert "/sign-in" in page.url
        await code.fill(pyotp.TOTP(key).now())
        await page.get_by_role("button", name="Sign in").click()
        await page.wait_for_url(ANY_HOME)
    for taken in (True, False):
        async with seen_by(browser, people.url) as console:
            page = console.page
            await fill_in(console, email)
            await page.get_by_label("Code from your second factor").fill(codes[0])
            await page.get_by_role("button", name="Sign in").click()
            if taken:
                await page.wait_for_url(ANY_HOME)
            else:
                await page.get_by_role("alert").wait_for()
                assert "/sign-in" in page.url, "a recovery code opens once"


@pytest.fixture(scope="module")
async def with_provider(
    new_postgres_url: Callable[[], Awaitable[str]], valkey_url: str, chromium: str
) -> AsyncIterator[str]:
    """The address of a gateway that a provider's groups are set up at."""
    require_node()
    url = await new_postgres_url()
    database = await asyncpg.connect(url)
    async with aiohttp.ClientSession() as session:
        await People(session, "", database, b"").move_in()
    await database.close()
    port, provider_port = free_port(), free_port()
    settings: dict[str, Any] = {
        "SLIPSTREAM_GATEWAY__CONSOLE__OIDC__ISSUER": f"http://127.0.0.1:{provider_port}",
        "SLIPSTREAM_GATEWAY__CONSOLE__OIDC__NAME": "the test's provider",
        "SLIPSTREAM_GATEWAY__CONSOLE__OIDC__CLIENT_ID": "slipstream",
        "SLIPSTREAM_GATEWAY__CONSOLE__OIDC__CLIENT_SECRET_ENV": "OIDC_SECRET",
        "SLIPSTREAM_GATEWAY__CONSOLE__OIDC__GROUPS": msgspec.json.encode(
            [{"group": "platform", "role": "admin"}]
        ).decode(),
        "OIDC_SECRET": "of-the-test",
    }
    async with (
        provider_for(f"http://127.0.0.1:{port}{CALLBACK}", provider_port),
        lone_gateway(url, valkey_url, port=port, **settings) as gateway,
    ):
        yield gateway.url


async def by_provider(console: Console, name: str, path: str = "/sign-in") -> None:
    """Press the provider's button, and be that person there."""
    page = console.page
    await page.goto(f"{console.url}/console{path}")
    await page.get_by_role("link", name="Continue with the test's provider").click()
    await page.wait_for_url(re.compile("/ask/"))
    await page.goto(f"{page.url}?as={name}")


async def test_the_providers_button_signs_in_and_leads_where_one_was_going(
    browser: Browser, with_provider: str
) -> None:
    async with seen_by(browser, with_provider) as console:
        await by_provider(console, "ada", "/account")
        await console.page.wait_for_url("**/console/account")
        await console.settled()
        await expect(console.page.locator("main")).to_contain_text("ada@example.com")


async def test_whom_the_provider_does_not_vouch_for_is_told_why_on_the_sign_in_page(
    browser: Browser, with_provider: str
) -> None:
    for name in ("stranger", "unverified", "nobody"):
        async with seen_by(browser, with_provider) as console:
            await by_provider(console, name)
            await console.page.wait_for_url(re.compile("/console/sign-in"))
            await console.page.get_by_role("heading", name="Sign in").wait_for()
            told = await console.page.locator(".notice").inner_text()
            assert len(told.split()) > 4, told
            await console.expect_no_faults(f"sign in, {name} by a provider")
