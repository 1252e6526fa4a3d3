"""A tenant's way through the console in a real browser: organization, project, key, use, usage, limit, why, rotate,
revoke; then every page, which axe finds nothing serious on.
"""

from __future__ import annotations

import contextlib
import io
import re
from collections.abc import AsyncIterator

import aiohttp
import pyotp
import pytest
import zxingcpp
from PIL import Image
from playwright.async_api import Browser

from tests.console.conftest import EMAIL, PASSWORD, Engines
from tests.console.figures import money
from tests.console.pages import OPERATORS_HOME, Console, expect, made, seen_by
from tests.deployment import Deployment

SECRET = re.compile(r"sk-slip-[0-9A-Za-z]{38}")
ORGANIZATION = re.compile(r"/org/([0-9a-f-]{36})")
MEMBERS_PASSWORD = "another four words here"


@pytest.fixture(scope="module")
async def acme(owner: Console) -> str:
    """A new organization's id, made in the console."""
    await owner.go("/organizations")
    await owner.page.get_by_role("button", name="New organization").first.click()
    dialog = owner.page.get_by_role("dialog")
    await dialog.get_by_label("Name").fill("acme")
    await dialog.get_by_role("button", name="Make organization").click()
    await owner.page.wait_for_url(ORGANIZATION)
    await owner.page.get_by_role("heading", name="acme", level=1).wait_for()
    found = ORGANIZATION.search(owner.page.url)
    assert found is not None
    return found.group(1)


@pytest.fixture(scope="module")
async def project(owner: Console, acme: str) -> str:
    """Its project's address below /console."""
    await owner.go(f"/org/{acme}/projects")
    await owner.page.get_by_role("button", name="New project").first.click()
    dialog = owner.page.get_by_role("dialog")
    await dialog.get_by_label("Name").fill("backend")
    await dialog.get_by_role("button", name="Make project").click()
    await owner.page.get_by_role("heading", name="backend", level=1).wait_for()
    return owner.page.url.split("/console")[1]


@pytest.fixture(scope="module")
async def key(owner: Console, project: str) -> str:
    """A key's secret, as it is shown once."""
    await owner.go(project)
    await owner.page.get_by_role("button", name="New key").first.click()
    dialog = owner.page.get_by_role("dialog")
    await expect(dialog.get_by_label("Name")).to_be_focused()
    await dialog.get_by_label("Name").fill("staging")
    await dialog.get_by_role("button", name="Make key").click()
    shown = owner.page.locator(".secret code")
    await shown.wait_for()
    secret = await shown.inner_text()
    curl = dialog.locator(".code-block").filter(has_text="curl")
    code, button = [await curl.locator(part).bounding_box() for part in ("code", "button")]
    assert code is not None
    assert button is not None
    assert code["y"] >= button["y"] + button["height"], "the button hides nothing of the line"
    await owner.page.get_by_role("button", name="I have stored it").click()
    assert not SECRET.search(await owner.page.content()), "it is shown once"
    return secret


@pytest.fixture
async def http() -> AsyncIterator[aiohttp.ClientSession]:
    """An application that uses the API."""
    async with aiohttp.ClientSession() as session:
        yield session


async def asked(http: aiohttp.ClientSession, url: str, key: str) -> tuple[int, str]:
    """One request; its status and id."""
    body = {"model": "fake", "messages": [{"role": "user", "content": "hello"}], "max_tokens": 8}
    async with http.post(f"{url}/v1/chat/completions", json=body, headers={"Authorization": f"Bearer {key}"}) as answer:
        await answer.read()
        return answer.status, answer.headers["x-request-id"]


async def test_what_a_key_used_shows_on_the_open_page(
    owner: Console, acme: str, key: str, http: aiohttp.ClientSession
) -> None:
    await owner.go(f"/org/{acme}/usage?by=key&figure=requests")
    await owner.page.get_by_text("No usage in this period").wait_for()
    status, _ = await asked(http, owner.url, key)
    assert status == 200
    await owner.page.get_by_role("cell", name="staging").wait_for()
    await expect(owner.page.locator("dt:has-text('Requests') + dd")).to_have_text("1")


async def test_a_limit_or_an_engine_refuses_and_the_request_tells_why(
    owner: Console, acme: str, project: str, key: str, http: aiohttp.ClientSession, fakes: Engines
) -> None:
    await fakes.fake.control(status=400)
    _, by_engine = await asked(http, owner.url, key)
    await fakes.fake.control(status=200)
    await owner.go(f"/org/{acme}/requests")
    await owner.until("id => fetch(`/admin/v1/requests/${id}`).then(answer => answer.ok)", by_engine)
    await owner.go(f"/org/{acme}/requests/{by_engine}")
    await owner.page.get_by_text("The engine refused the request before the first token").wait_for()
    assert await owner.page.get_by_text("engine_error").count() == 0, "the engine is not at fault"
    await owner.go(project)
    await owner.page.get_by_role("link", name="staging").click()
    await owner.page.get_by_role("button", name="Set a limit").click()
    dialog = owner.page.get_by_role("dialog")
    await dialog.get_by_label("Requests per minute").fill("1")
    await dialog.get_by_role("button", name="Save").click()
    await owner.page.get_by_text("The rule is set").wait_for()
    statuses = [await asked(http, owner.url, key) for _ in range(3)]
    refused = next(request_id for status, request_id in statuses if status == 429)
    await owner.go(f"/org/{acme}/requests")
    await owner.page.get_by_label("Request’s id").fill(refused)
    # the record of a request is written a moment after its answer
    await owner.until("id => fetch(`/admin/v1/requests/${id}`).then(answer => answer.ok)", refused)
    await owner.page.get_by_role("button", name="Find out").click()
    await owner.page.get_by_text("Limited by requests per minute of the key").wait_for()
    await owner.expect_no_faults("a refused request")


async def test_a_rotated_key_opens_with_both_secrets_and_a_revoked_one_with_none(
    owner: Console, project: str, key: str, http: aiohttp.ClientSession
) -> None:
    await owner.go(project)
    await owner.page.get_by_role("button", name="Actions for staging").click()
    await owner.page.get_by_role("menuitem", name="Rotate…").click()
    await owner.page.get_by_role("button", name="Make a new secret").click()
    shown = owner.page.get_by_text(SECRET)
    await shown.wait_for()
    new = await shown.inner_text()
    leave = owner.page.get_by_role("button", name="Close anyway")
    assert await leave.count() == 0
    for _ in range(3):  # browsers let a page prevent the first only
        await owner.page.keyboard.press("Escape")
        await leave.wait_for()
        assert await shown.is_visible()
    await owner.expect_no_faults("a secret that would be lost")
    await owner.page.get_by_role("button", name="I have stored it").click()
    await shown.wait_for(state="detached")
    assert new != key
    await owner.page.get_by_role("row", name=re.compile("staging.*old secret ends tomorrow")).wait_for()
    for secret in (key, new):  # 429: it is limited, not refused
        assert (await asked(http, owner.url, secret))[0] in (200, 429)
    await owner.page.get_by_role("button", name="Actions for staging").click()
    await owner.page.get_by_role("menuitem", name="Revoke…").click()
    await owner.page.get_by_role("dialog").get_by_role("button", name="Revoke").click()
    await owner.page.get_by_role("cell", name="revoked").wait_for()
    await owner.until(
        "key => fetch('/v1/models', {headers: {authorization: `Bearer ${key}`}}).then(answer => answer.status == 401)",
        new,
    )


async def test_limits_counters_equal_the_ledger(owner: Console, deployed: Deployment) -> None:
    organization = (await made(owner, "/organizations", {"name": "limited"}))["id"]
    project = (await made(owner, f"/organizations/{organization}/projects", {"name": "backend"}))["id"]
    key = await made(owner, f"/projects/{project}/keys", {"name": "staging"})
    price = {"model": "pair", "input_micro": 2_500_000, "output_micro": 10_000_000}
    await made(owner, "/prices", price)
    limits = {"tokens_per_day": 1_000_000, "money_micro_per_month": 5_000_000}
    await made(owner, f"/limits/project/{project}/all", limits, "PUT")
    body = {"model": "pair", "messages": [{"role": "user", "content": "hello"}], "max_tokens": 8}
    ids = []
    async with aiohttp.ClientSession(headers={"Authorization": f"Bearer {key['secret']}"}) as http:
        for _ in range(3):
            async with http.post(f"{deployed.url}/v1/chat/completions", json=body) as answer:
                assert answer.status == 200, await answer.text()
                await answer.read()
                ids.append(answer.headers["x-request-id"])
    rows = await deployed.ledger(*ids)
    tokens = sum(row["prompt_tokens"] + row["completion_tokens"] for row in rows)
    spent = sum(row["amount_micro"] for row in rows)
    assert tokens > 0
    assert spent > 0
    page = owner.page
    await owner.go(f"/org/{organization}/limits?project={project}")
    card = page.locator("section.card", has=page.get_by_role("heading", name="Limits of the project"))
    for label, used, limit in (
        ("Tokens per day", f"{tokens:,}", "1,000,000"), ("Budget per month", money(spent), money(5_000_000)),
    ):  # fmt: skip
        await expect(card.get_by_role("listitem").filter(has_text=label)).to_contain_text(f"{used} of {limit} (")


async def test_the_audit_log_shows_what_changed(owner: Console, acme: str, key: str) -> None:
    await owner.go(f"/org/{acme}/audit")
    await owner.page.get_by_role("button", name=re.compile("project.create")).click()
    dialog = owner.page.get_by_role("dialog")
    assert await dialog.get_by_role("row", name=re.compile("^name added")).get_by_role("cell").all_inner_texts() == [
        "name added",
        "–",
        "backend",
    ]


async def test_chat_streams_in_the_playground_and_tells_its_tokens(owner: Console, acme: str, project: str) -> None:
    await owner.go(f"/org/{acme}")
    await owner.page.get_by_role("link", name="Chat").click()
    await owner.page.get_by_role("button", name="Make a key").click()
    await owner.page.get_by_role("combobox", name="Model").select_option("fake")
    await owner.page.get_by_label("Message", exact=True).fill("it's me")
    await owner.page.get_by_role("button", name="Send").click()
    await owner.page.get_by_text(re.compile("^Ended by")).wait_for()
    assert re.search(r"out; \d+ in", await owner.page.locator("dt:has-text('Tokens') + dd").inner_text())
    await owner.page.get_by_role("link", name=re.compile("^req_")).wait_for()
    await owner.expect_no_faults("chat after an answer")


async def test_every_page_is_usable_in_light_and_dark(owner: Console, acme: str, project: str) -> None:
    pages = (
        "projects", "members", "service-accounts", "admin-keys", "limits", "usage", "invoices", "requests", "webhooks",
        "audit",
    )  # fmt: skip
    addresses = [f"/org/{acme}", *(f"/org/{acme}/{name}" for name in pages), project]
    for path in (*addresses, "/organizations", "/prices", "/account", "/playground/chat", "/playground/autocomplete"):
        await owner.go(path)
        assert await owner.heading()
        await owner.expect_no_faults(path)


async def test_a_phone_shows_the_menu_on_demand_and_scrolls_down_only(
    browser: Browser, owner: Console, deployed: Deployment, acme: str
) -> None:
    async with seen_by(browser, deployed.url, width=390, height=844) as phone:
        await sign_in(phone)
        for path in (f"/org/{acme}", f"/org/{acme}/projects", f"/org/{acme}/usage", "/playground/chat", "/account"):
            await phone.go(path)
            wide = await phone.page.evaluate("document.documentElement.scrollWidth")
            assert wide <= 390, f"{path} is {wide} pixels wide"
            assert not await phone.page.get_by_role("link", name="Audit log").is_visible()
        await phone.go(f"/org/{acme}")
        await phone.page.get_by_role("button", name="Menu").click()
        await phone.page.get_by_text("More", exact=True).click()
        await phone.page.get_by_role("link", name="Audit log").wait_for()
        await phone.page.keyboard.press("Escape")
        await phone.page.get_by_role("link", name="Audit log").wait_for(state="hidden")
        await phone.expect_no_faults("phone")


@contextlib.asynccontextmanager
async def welcomed(
    browser: Browser, owner: Console, deployed: Deployment, acme: str, name: str
) -> AsyncIterator[Console]:
    """The window of a new developer, signed in by the link that the owner was shown."""
    await owner.go(f"/org/{acme}/members")
    await owner.page.get_by_role("button", name="Add member").first.click()
    dialog = owner.page.get_by_role("dialog")
    await dialog.get_by_label("Email").fill(f"{name}@acme.example")
    await dialog.get_by_label("Name").fill(name)
    await dialog.get_by_label("Role").select_option("developer")
    await dialog.get_by_role("button", name="Add", exact=True).click()
    link = owner.page.get_by_text(re.compile(r"#/welcome\?token="))
    await link.wait_for()
    async with seen_by(browser, deployed.url) as console:
        page = console.page
        await page.goto(await link.inner_text())
        await page.get_by_label("Password", exact=True).fill(MEMBERS_PASSWORD)
        await page.get_by_label("Repeat the password").fill(MEMBERS_PASSWORD)
        await page.get_by_role("button", name="Begin").click()
        await page.get_by_role("heading", name="acme", level=1).wait_for()
        yield console


async def test_a_developer_of_the_organization_sees_what_the_role_allows(
    browser: Browser, owner: Console, deployed: Deployment, acme: str
) -> None:
    async with welcomed(browser, owner, deployed, acme, "Dev") as console:
        page = console.page
        await page.get_by_text("More", exact=True).click()
        names = await page.get_by_role("navigation", name="Main").get_by_role("link").all_inner_texts()
        assert "Projects" in names
        assert not {"Admin keys", "Webhooks", "Audit log", "Organizations"} & set(names)
        await console.go(f"/org/{acme}/projects")
        assert await page.get_by_role("button", name="New project").count() == 0
        await console.expect_no_faults("projects, as a developer")


async def test_an_authenticator_takes_the_key_from_a_picture_or_by_hand(
    browser: Browser, owner: Console, deployed: Deployment, acme: str
) -> None:
    async with welcomed(browser, owner, deployed, acme, "Grace") as console:
        page = console.page
        await console.go("/account")
        await page.get_by_role("button", name="Turn on").click()
        dialog = page.get_by_role("dialog")
        await dialog.get_by_label("Your password").fill(MEMBERS_PASSWORD)
        await dialog.get_by_role("button", name="Go on").click()
        picture = dialog.get_by_role("img", name="The key for an authenticator, as a QR code")
        [scanned] = zxingcpp.read_barcodes(Image.open(io.BytesIO(await picture.screenshot())))
        key = await dialog.locator(".secret code").inner_text()
        assert pyotp.parse_uri(scanned.text).secret == key
        await console.expect_no_faults("the second factor")
        await dialog.get_by_label("The code it shows").fill(pyotp.TOTP(key).now())
        await dialog.get_by_role("button", name="Turn on").click()
        await page.get_by_role("region", name="Recovery codes").wait_for()


async def test_signing_in_leads_back_and_never_elsewhere(
    browser: Browser, owner: Console, deployed: Deployment, acme: str
) -> None:
    async with seen_by(browser, deployed.url) as console:
        await console.page.goto(f"{deployed.url}/console/org/{acme}/usage?by=model")
        await console.page.get_by_role("heading", name="Sign in").wait_for()
        await console.expect_no_faults("sign in")
        await fill_in(console)
        await console.page.wait_for_url(f"**/console/org/{acme}/usage?by=model")
    async with seen_by(browser, deployed.url) as console:
        await console.page.goto(f"{deployed.url}/console/sign-in?next=//evil.example/")
        await fill_in(console)
        await console.page.wait_for_url(deployed.url + "/console/operations")


async def sign_in(console: Console) -> None:
    """As the first owner."""
    await console.page.goto(f"{console.url}/console/")
    await fill_in(console)
    await console.page.wait_for_url(OPERATORS_HOME)
    await console.settled()


async def fill_in(console: Console) -> None:
    """The form of the sign-in page."""
    await console.page.get_by_label("Email").fill(EMAIL)
    await console.page.get_by_label("Password").fill(PASSWORD)
    await console.page.get_by_role("button", name="Sign in").click()
