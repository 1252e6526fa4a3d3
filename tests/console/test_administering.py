"""Webhooks with replay, prices, admin keys and service accounts in a real browser: what is pressed there happens, and
leaves its rows in the audit log.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta

import aiohttp
import pytest

from tests.console.pages import Console, expect, made
from tests.control.api.receiver import Receiver, receiver
from tests.deployment import Deployment

ADMIN_SECRET = re.compile(r"sk-slip-admin-[0-9A-Za-z]{38}")
WEBHOOK_SECRET = re.compile(r"whsec_\S+")
AUDITED = """
SELECT action FROM gateway.audit_log
 WHERE actor_kind = 'member' AND split_part(action, '.', 1) = ANY($1) AND id > $2 ORDER BY id
"""


@pytest.fixture(scope="module")
async def acme(owner: Console) -> str:
    """A new organization's id."""
    return str((await made(owner, "/organizations", {"name": "administered"}))["id"])


@pytest.fixture
async def customer() -> AsyncIterator[Receiver]:
    """A customer's server."""
    async with receiver() as listening:
        yield listening


@pytest.fixture
async def before(deployed: Deployment) -> int:
    """The newest row of the audit log when the test began."""
    async with deployed.database() as database:
        return int(await database.fetchval("SELECT coalesce(max(id), 0) FROM gateway.audit_log"))


async def audited(deployed: Deployment, before: int, *subjects: str) -> list[str]:
    """What was done in the console since then to things of these kinds, in order."""
    async with deployed.database() as database:
        return [row["action"] for row in await database.fetch(AUDITED, list(subjects), before)]


async def kept(owner: Console, secret: re.Pattern[str]) -> str:
    """The secret that is shown, this once."""
    shown = owner.page.get_by_text(secret)
    await shown.wait_for()
    told = await shown.inner_text()
    await owner.page.get_by_role("button", name="I have stored it").click()
    await shown.wait_for(state="detached")
    return told


async def test_a_webhook_is_made_tried_and_its_delivery_sent_again(
    owner: Console, deployed: Deployment, acme: str, customer: Receiver, before: int
) -> None:
    page = owner.page
    await owner.go(f"/org/{acme}/webhooks")
    await page.get_by_role("button", name="New webhook").first.click()
    dialog = page.get_by_role("dialog")
    await dialog.get_by_label("Address").fill(customer.url)
    await dialog.get_by_label("What for").fill("budgets")
    await owner.expect_no_faults("the form of a webhook")
    await dialog.get_by_role("button", name="Save").click()
    await kept(owner, WEBHOOK_SECRET)
    await page.get_by_role("link", name=customer.url).click()
    await page.get_by_role("heading", name="budgets", level=1).wait_for()
    await owner.settled()
    await page.get_by_role("button", name="Send a test").click()
    row = page.get_by_role("table", name="Deliveries").get_by_role("row", name=re.compile("webhook.test"))
    await expect(row.get_by_role("cell").nth(1)).to_have_text("delivered")
    assert len(customer.came) == 1
    await row.get_by_role("button", name="Actions for the delivery of webhook.test").click()
    await page.get_by_role("menuitem", name="Send again").click()
    await expect(row.get_by_role("cell").nth(2)).to_have_text("2")
    await expect(row.get_by_role("cell").nth(1)).to_have_text("delivered")
    assert [each.event["type"] for each in customer.came] == ["webhook.test"] * 2
    assert customer.came[0].event["id"] == customer.came[1].event["id"], "the same event, not another"
    await row.get_by_role("button", name="Actions for the delivery of webhook.test").click()
    await page.get_by_role("menuitem", name="Attempts…").click()
    attempts = dialog.get_by_role("table", name="Attempts")
    await expect(attempts.get_by_role("row", name=re.compile(r"\b200\b"))).to_have_count(2)
    await owner.expect_no_faults("the attempts of a delivery")
    await page.keyboard.press("Escape")
    await page.get_by_role("button", name="More actions").click()
    await page.get_by_role("menuitem", name="Remove…").click()
    await dialog.get_by_role("button", name="Remove").click()
    await page.get_by_role("heading", name="Webhooks", level=1).wait_for()
    assert await audited(deployed, before, "webhook", "delivery") == [
        "webhook.create", "webhook.test", "delivery.retry", "webhook.delete"
    ]  # fmt: skip


async def test_a_price_is_made_and_one_that_has_not_begun_is_removed(
    owner: Console, deployed: Deployment, before: int
) -> None:
    page = owner.page
    await owner.go("/prices?model=priced")
    await page.get_by_role("button", name="New price").first.click()
    dialog = page.get_by_role("dialog")
    await dialog.get_by_label("Model").fill("priced")
    await dialog.get_by_label("Input, of a million tokens", exact=True).fill("2.5")
    await dialog.get_by_label("Output, of a million tokens").fill("a dime")
    await dialog.get_by_text("An amount of at most six decimals.").wait_for()
    assert await dialog.get_by_role("button", name="Make price").is_disabled()
    await dialog.get_by_label("Output, of a million tokens").fill("10")
    await owner.expect_no_faults("the form of a price")
    await dialog.get_by_role("button", name="Make price").click()
    rows = page.get_by_role("table", name="Prices").locator("tbody tr")
    await expect(rows).to_have_count(1)
    cells = await rows.first.get_by_role("cell").all_inner_texts()
    told = [cell.strip().replace("\xa0", " ") for cell in cells[1:5]]
    assert told == ["2.50 USD", "0.25 USD", "2.50 USD", "10.00 USD"], "the cache's follow the input"
    year = datetime.now(UTC).year + 1
    later = {"model": "priced", "input_micro": 1, "output_micro": 1, "valid_from": f"{year}-01-01T00:00:00Z"}
    planned = (await made(owner, "/prices", later))["version"]
    await owner.go("/prices?model=priced")
    await page.get_by_role("button", name=f"Actions for the price of priced, version {planned}").click()
    await page.get_by_role("menuitem", name="Remove…").click()
    await dialog.get_by_role("button", name="Remove").click()
    await expect(rows).to_have_count(1)
    async with deployed.database() as database:
        [row] = await database.fetch("SELECT * FROM gateway.prices WHERE model = 'priced'")
    assert (row["input_micro"], row["output_micro"]) == (2_500_000, 10_000_000)
    assert row["valid_until"] is None, "it goes on"
    await expect(rows.first.get_by_role("cell").nth(6)).to_have_text("further notice")
    assert await audited(deployed, before, "price") == ["price.create", "price.create", "price.delete", "price.update"]


async def test_a_price_is_ended(owner: Console, deployed: Deployment, before: int) -> None:
    page = owner.page
    await made(owner, "/prices", {"model": "ended", "input_micro": 1, "output_micro": 1})
    await owner.go("/prices?model=ended")
    await page.get_by_role("button", name="Actions for the price of ended, version").click()
    await page.get_by_role("menuitem", name=re.compile("^End")).click()
    dialog = page.get_by_role("dialog")
    await dialog.get_by_role("button", name=re.compile("^End")).click()
    await dialog.wait_for(state="hidden")
    async with deployed.database() as database:
        ends = await database.fetchval("SELECT valid_until FROM gateway.prices WHERE model = 'ended'")
    assert ends > datetime.now(UTC), "gateways know of it before it ends"
    assert (await audited(deployed, before, "price"))[-1] == "price.update"


async def test_a_price_with_a_successor_is_ended_before_that_one_begins(owner: Console, deployed: Deployment) -> None:
    page = owner.page
    rates = {"model": "followed", "input_micro": 1, "output_micro": 1}
    first = (await made(owner, "/prices", rates))["version"]
    year = datetime.now(UTC).year + 1
    planned = (await made(owner, "/prices", {**rates, "valid_from": f"{year}-12-31T00:00:00Z"}))["version"]
    await owner.go("/prices?model=followed")
    await page.get_by_role("button", name=f"Actions for the price of followed, version {planned}").click()
    await expect(page.get_by_role("menuitem")).to_have_text(["Remove…"])
    await page.keyboard.press("Escape")
    await page.get_by_role("button", name=f"Actions for the price of followed, version {first}").click()
    await expect(page.get_by_role("menuitem")).to_have_text(["End…"])
    await page.get_by_role("menuitem", name="End…").click()
    dialog = page.get_by_role("dialog")
    await expect(dialog).to_contain_text("until another price begins. Without this it ends ")
    await dialog.get_by_role("button", name="End", exact=True).click()
    await dialog.wait_for(state="hidden")
    async with deployed.database() as database:
        ends = await database.fetchval("SELECT valid_until FROM gateway.prices WHERE version = $1", first)
    assert datetime.now(UTC) < ends < datetime.now(UTC) + timedelta(minutes=5)


async def status_of(url: str, secret: str) -> int:
    """What the admin API answers to that key."""
    async with (
        aiohttp.ClientSession(headers={"Authorization": f"Bearer {secret}"}) as http,
        http.get(f"{url}/admin/v1/me") as answer,
    ):
        return answer.status


async def test_a_service_account_has_admin_keys_that_are_rotated_and_revoked(
    owner: Console, deployed: Deployment, acme: str, before: int
) -> None:
    page = owner.page
    await owner.go(f"/org/{acme}/service-accounts")
    await page.get_by_role("button", name="New service account").first.click()
    dialog = page.get_by_role("dialog")
    await dialog.get_by_label("Name").fill("pipeline")
    await owner.expect_no_faults("the form of a service account")
    await dialog.get_by_role("button", name="Save").click()
    row = page.get_by_role("row", name=re.compile("pipeline"))
    await expect(row).to_contain_text("viewer")
    await row.get_by_role("button", name="Actions for pipeline").click()
    await page.get_by_role("menuitem", name="Change…").click()
    await dialog.get_by_label("Role").select_option("developer")
    await dialog.get_by_role("button", name="Save").click()
    await expect(row).to_contain_text("developer")

    await owner.go(f"/org/{acme}/admin-keys")
    await page.get_by_role("button", name="New admin key").first.click()
    await dialog.get_by_label("Name").fill("nightly")
    assert await dialog.get_by_role("button", name="Make key").is_disabled(), "of whom?"
    await dialog.get_by_label("Of", exact=True).select_option("pipeline (developer)")
    await owner.expect_no_faults("the form of an admin key")
    await dialog.get_by_role("button", name="Make key").click()
    first = await kept(owner, ADMIN_SECRET)
    assert await status_of(deployed.url, first) == 200
    await page.get_by_role("button", name="Actions for nightly").click()
    await page.get_by_role("menuitem", name="Rotate…").click()
    await dialog.get_by_label("The old secret ends").select_option(label="now")
    await dialog.get_by_role("button", name="Make a new secret").click()
    second = await kept(owner, ADMIN_SECRET)
    assert [await status_of(deployed.url, each) for each in (first, second)] == [401, 200]
    await page.get_by_role("button", name="Actions for nightly").click()
    await page.get_by_role("menuitem", name="Revoke…").click()
    await dialog.get_by_role("button", name="Revoke").click()
    await page.get_by_role("cell", name="revoked").wait_for()
    assert await status_of(deployed.url, second) == 401

    await owner.go(f"/org/{acme}/service-accounts")
    await row.get_by_role("button", name="Actions for pipeline").click()
    await page.get_by_role("menuitem", name="Disable").click()
    await expect(row).to_contain_text("disabled")
    await row.get_by_role("button", name="Actions for pipeline").click()
    await page.get_by_role("menuitem", name="Remove…").click()
    await dialog.get_by_role("button", name="Remove").click()
    await page.get_by_role("heading", name="No service accounts").wait_for()
    assert await audited(deployed, before, "service_account", "admin_key") == [
        "service_account.create", "service_account.update", "admin_key.create", "admin_key.rotate", "admin_key.revoke",
        "service_account.update", "service_account.delete",
    ]  # fmt: skip
