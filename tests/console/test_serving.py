"""Operators' pages of what serves: the fleet as the router sees it, objectives, diagnosis, the prefix contract."""

from __future__ import annotations

import re

import aiohttp
import msgspec
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from playwright.async_api import Browser, Locator, Page

from engines.drivers import registry
from tests.console.conftest import EMAIL, PASSWORD, Engines
from tests.console.pages import GUARD_S, OPERATORS_HOME, Console, expect, made, seen_by
from tests.deployment import Deployment

BODY = {"model": "fake", "messages": [{"role": "user", "content": "hello"}], "max_tokens": 8}
PAGES = ("/operations/fleet", "/operations/fleet/versions", "/operations/fleet/versions/1", "/operations/slo")
DIAGNOSES = ("/operations/diagnosis",)


async def status_of(deployed: Deployment, key: str = "") -> int:
    """What a customer is answered now."""
    headers = {"Authorization": f"Bearer {key or deployed.key}"}
    async with (
        aiohttp.ClientSession(headers=headers) as http,
        http.post(f"{deployed.url}/v1/chat/completions", json=BODY) as answer,
    ):
        await answer.read()
        return answer.status


async def newest_version(deployed: Deployment) -> int:
    """Of the fleet."""
    async with deployed.database() as database:
        return int(await database.fetchval("SELECT max(version) FROM gateway.desired_states"))


def row_of(page: Page) -> Locator:
    """The replica's, on the fleet's page."""
    return page.get_by_role("region", name="Replicas", exact=True).get_by_role("row", name="fake-0")


@pytest.fixture
async def live(owner: Console, deployed: Deployment) -> Console:
    """The fleet's page."""
    await owner.go("/operations/fleet")
    return owner


async def test_the_fleets_page_says_what_the_router_sees(live: Console, deployed: Deployment) -> None:
    seen = msgspec.json.decode(await deployed.command("fleet", "--json"))
    [pool] = [pool for pool in seen["pools"] if pool["name"] == "fake"]
    [replica] = pool["replicas"]
    page = live.page
    table = page.get_by_role("region", name="Replicas", exact=True)
    group = table.get_by_role("row", name=re.compile(f"^{pool['name']} serves fake"))
    await expect(group.get_by_role("link", name=pool["name"])).to_be_visible()
    await expect(group).to_contain_text(re.compile("in the last hour"))
    row = table.get_by_role("row", name=replica["id"])
    await expect(row.get_by_text(f"{replica['url']} · {replica['driver']}")).to_be_visible()
    await expect(row.get_by_text("healthy", exact=True)).to_be_visible()
    await expect(row.get_by_text(f"of {replica['max_concurrency']:,}")).to_be_visible()
    version = await newest_version(deployed)
    await expect(page.get_by_role("region", name="Gateways").get_by_text(f"version {version}")).to_be_visible()


async def test_a_drained_replica_is_given_nothing_until_it_is_given_requests_again(
    live: Console, deployed: Deployment
) -> None:
    page = live.page
    assert await status_of(deployed) == 200
    row = row_of(page)
    await row.get_by_role("button", name="Drain").click()
    dialog = page.get_by_role("dialog")
    await expect(dialog.get_by_text("No other replica of this pool can serve")).to_be_visible()
    assert await dialog.get_by_role("button", name="Drain").is_disabled(), "the last one is asked about twice"
    await dialog.get_by_role("textbox").fill("fake-0")
    await dialog.get_by_role("button", name="Drain").click()
    await row.get_by_text("drained", exact=True).wait_for()
    assert await status_of(deployed) == 503
    await live.expect_no_faults("a drained fleet")
    await row.get_by_role("button", name="Undrain").click()
    await page.get_by_role("dialog").get_by_role("button", name="Undrain").click()
    await row.get_by_text("healthy", exact=True).wait_for()
    assert await status_of(deployed) == 200


async def reported_model(_: web.Request) -> web.Response:
    """What vLLM answers."""
    return web.json_response({"data": [{"id": "org/small", "max_model_len": 4_096}]})


async def removed(page: Page, row: Locator, name: str) -> None:
    """A row of the fleet, by its menu."""
    await row.get_by_role("button", name="Actions").click()
    await page.get_by_role("menuitem", name="Remove…").click()
    await page.get_by_role("dialog").get_by_role("textbox").fill(name)
    await page.get_by_role("dialog").get_by_role("button", name="Remove").click()
    await row.wait_for(state="detached")


async def test_a_model_is_added_with_its_engines_url_and_another_replica_then(
    live: Console, deployed: Deployment, fakes: Engines
) -> None:
    page, served = live.page, await newest_version(deployed)
    await page.get_by_role("button", name="Add a model").click()
    dialog = page.get_by_role("dialog")
    await expect(dialog).to_contain_text("slipstream up --chat-model NAME|FILE")
    drivers = await dialog.get_by_label("Driver").locator("option").evaluate_all("all => all.map(each => each.value)")
    assert sorted(drivers) == sorted(registry.names())
    await dialog.get_by_label("Name", exact=True).fill("added")
    app = web.Application()
    app.router.add_get("/v1/models", reported_model)
    async with TestServer(app) as engine:
        await dialog.get_by_label("Driver").select_option("openai")
        await dialog.get_by_label("Engine’s URL").fill(str(engine.make_url("/v1")))
        await dialog.get_by_label("API key file").focus()
        await dialog.get_by_text("It serves org/small with a context of 4,096 tokens.").wait_for()
    await expect(dialog.get_by_label("The engine’s name for it")).to_have_value("org/small")
    await expect(dialog.get_by_label("Context")).to_have_value("4096")
    await dialog.get_by_label("The engine’s name for it").fill("fake")
    await dialog.get_by_label("Engine’s URL").fill("http://127.0.0.1:9")
    await dialog.get_by_label("Driver").select_option("openai")
    await dialog.get_by_role("button", name="Add", exact=True).click()
    await expect(dialog.get_by_role("alert")).to_contain_text("http://127.0.0.1:9")
    await dialog.get_by_role("button", name="Add anyway").wait_for()
    assert await newest_version(deployed) == served, "neither the pool nor the model is written"
    await dialog.get_by_label("Engine’s URL").fill(f"{fakes.fake.url}/v1")
    await dialog.get_by_role("button", name="Add", exact=True).click()
    await expect(dialog.get_by_role("alert")).to_contain_text(
        "and a probe sends none, so its models are unknown. Choose “Add anyway” to skip this check."
    )
    await dialog.get_by_role("button", name="Add anyway").click()
    row = page.get_by_role("region", name="Replicas", exact=True).get_by_role("row", name=re.compile("^added-1"))
    await row.get_by_text("healthy", exact=True).wait_for()
    await live.go("/operations/fleet/pools/added")
    await page.get_by_role("button", name="Add a replica").click()
    await dialog.get_by_label("Engine’s URL").fill("http://127.0.0.1:9")
    await dialog.get_by_role("button", name="Add", exact=True).click()
    await expect(dialog.get_by_role("alert")).to_contain_text("http://127.0.0.1:9")
    await dialog.get_by_role("button", name="Add anyway").click()
    await page.get_by_role("row", name="added-2").first.wait_for()
    await live.go("/operations")
    await expect(page.get_by_text("Pool added: 1 of 2 replicas are usable (added-2:")).to_be_visible()
    await expect(page.get_by_role("link", name="Fleet 1 problem")).to_be_visible()
    await expect(page.get_by_role("link", name="Open the fleet").first).to_be_visible()
    await live.expect_no_faults("a first page that needs attention")
    await live.go("/operations/fleet/pools/added")
    dead = page.get_by_role("region", name="Replicas of added, as set up").get_by_role(
        "row", name=re.compile("^added-2")
    )
    await dead.get_by_role("button", name="Actions").click()
    await page.get_by_role("menuitem", name="Change the URL…").click()
    await dialog.get_by_label("Engine’s URL").fill("http://127.0.0.1:8")
    await dialog.get_by_role("button", name="Change", exact=True).click()
    await dialog.get_by_role("button", name="Change anyway").click()
    await expect(dead).to_contain_text("http://127.0.0.1:8")
    await removed(page, dead, "added-2")
    model = page.get_by_role("region", name="Models of added").get_by_role("row", name=re.compile("^added"))
    await removed(page, model, "added")
    await page.get_by_role("button", name="Remove the pool…").click()
    await dialog.get_by_role("textbox").fill("added")
    await dialog.get_by_role("button", name="Remove").click()
    await page.wait_for_url("**/operations/fleet")
    await page.get_by_role("button", name="Add a pool").click()
    await dialog.get_by_label("Name", exact=True).fill("apart")
    await dialog.get_by_label("Engine’s URL").fill(f"{fakes.fake.url}/v1")
    await dialog.get_by_role("button", name="Add", exact=True).click()
    await page.get_by_role("row", name=re.compile("^apart-1")).get_by_text("healthy", exact=True).wait_for()
    await made(live, "/fleet/rollback", {"version": served}, "POST")


async def test_an_earlier_version_is_gone_back_to_after_it_was_told_what_differs(
    live: Console, deployed: Deployment
) -> None:
    page, served = live.page, await newest_version(deployed)
    for weight in (0.0, 1.0):
        await made(live, "/pools/fake/replicas/fake-0?force=true", {"weight": weight}, "PATCH")
    await live.go("/operations/fleet/versions")
    newest = page.get_by_role("region", name="Versions of the fleet").get_by_role("link").first
    await expect(newest).to_have_text(str(served + 2))
    await live.go(f"/operations/fleet/versions/{served + 1}")
    await expect(page.get_by_text("weight 1.0 -> 0.0")).to_be_visible()
    await page.get_by_role("button", name="Go back to this version").click()
    dialog = page.get_by_role("dialog")
    await expect(dialog.get_by_role("alert")).to_contain_text("Nothing would serve 'fake'")
    await dialog.get_by_role("button", name="Cancel").click()
    await live.go(f"/operations/fleet/versions/{served}")
    await page.get_by_role("button", name="Go back to this version").click()
    await dialog.get_by_role("button", name="Go back").click()
    await page.get_by_text(f"with the contents of version {served}").wait_for()


async def test_objectives_and_diagnosis_count_the_requests_there_were(live: Console, deployed: Deployment) -> None:
    page = live.page
    key = await deployed.make_key("--organization", "served")
    assert await status_of(deployed, key) == 200
    async with deployed.database() as database:
        tenant = await database.fetchval("SELECT id FROM gateway.organizations WHERE name = 'served'")
    counted = page.locator("dt:has-text('Counted') + dd")
    await live.go(f"/org/{tenant}/objectives?period=1h")
    await expect(counted).to_have_text("1 of 1", timeout=2_000 * GUARD_S)  # minutes are added up when they are over
    await live.expect_no_faults("an organization's objectives")
    await live.go("/operations/slo?period=1h")
    await page.get_by_role("region", name="Objectives").get_by_text("chat, short prompts").wait_for()
    await expect(counted).not_to_have_text("0 of 0")
    await live.expect_no_faults("objectives")
    await live.go("/operations/diagnosis")
    await page.get_by_role("heading", name="TTFT and TPOT").wait_for()
    await page.get_by_role("combobox", name="Tier").select_option("chat")
    await page.wait_for_url("**tier=chat**")


async def test_every_page_of_serving_is_usable_in_light_and_dark(live: Console) -> None:
    organization = await live.page.evaluate("fetch('/admin/v1/me').then(answer => answer.json())")
    own = f"/org/{organization['organization_id']}"
    for path in (*PAGES, *DIAGNOSES, f"{own}/prefixes", f"{own}/diagnosis", f"{own}/objectives"):
        await live.go(path)
        await live.expect_no_faults(path)


async def test_a_phone_scrolls_pages_of_serving_down_only(
    browser: Browser, live: Console, deployed: Deployment
) -> None:
    async with seen_by(browser, deployed.url, width=390, height=844) as phone:
        await phone.page.goto(f"{deployed.url}/console/sign-in")
        await phone.page.get_by_label("Email").fill(EMAIL)
        await phone.page.get_by_label("Password", exact=True).fill(PASSWORD)
        await phone.page.get_by_role("button", name="Sign in", exact=True).click()
        await phone.page.wait_for_url(OPERATORS_HOME)
        for path in (*PAGES, *DIAGNOSES):
            await phone.go(path)
            wide = await phone.page.evaluate("document.documentElement.scrollWidth")
            assert wide <= 390, f"{path} is {wide} pixels wide"
