"""A deployment on a fake engine, and a real Chromium that somebody is signed in with."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
from collections.abc import AsyncIterator, Mapping

import pytest
from playwright.async_api import Browser, async_playwright

from tests.console.pages import OPERATORS_HOME, Console, seen_by
from tests.deployment import ROOT, Deployment, deployment, fake_fleet
from tests.fakes.process import fake_engine

TOKEN = "deployment-token-of-the-console"
CHAT_TOKENIZER = str(ROOT / "models" / "slipstream-chat")
ARGUMENTS = [
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync",
]  # fmt: skip
EMAIL, PASSWORD = "ada@acme.example", "four words in a row"
LINK = re.compile(r"http://\S+/console/#/welcome\?token=\S+")


@pytest.fixture(scope="session")
def chromium() -> str:
    """Its path; without one the tests skip, or fail where TEST_CHROMIUM is `required`."""
    found = shutil.which("chromium")
    if found is None:
        assert os.environ.get("TEST_CHROMIUM") != "required", "TEST_CHROMIUM=required: apt-get install chromium"
        pytest.skip("no Chromium: apt-get install chromium")
    return found


@pytest.fixture(scope="session")
async def browser(chromium: str) -> AsyncIterator[Browser]:
    """Headless."""
    async with async_playwright() as driver:
        started = await driver.chromium.launch(executable_path=chromium, args=ARGUMENTS)
        yield started
        await started.close()


@contextlib.asynccontextmanager
async def serving(fleet: Mapping[str, str]) -> AsyncIterator[Deployment]:
    """A gateway, a worker and a router in front of that fleet, whose engines know TOKEN."""
    async with deployment(environment={**fleet, "SLIPSTREAM_SLO__ROLL_UP_EVERY_S": "2"}, token=TOKEN) as running:
        yield running


@pytest.fixture(scope="module")
async def deployed(chromium: str) -> AsyncIterator[Deployment]:
    """In front of a fake engine that serves `fake`. Of one module: tests change the fleet."""
    async with (
        fake_engine(token=TOKEN) as engine,
        serving(fake_fleet(engine.url, tokenizer=CHAT_TOKENIZER, context_tokens=20_000, max_adapters=4)) as running,
    ):
        yield running


@pytest.fixture(scope="module")
async def owner(browser: Browser, deployed: Deployment) -> AsyncIterator[Console]:
    """The first account, made by the link of the first start."""
    link = LINK.search(deployed.output)
    assert link is not None, deployed.output
    async with contextlib.AsyncExitStack() as stack:
        console = await stack.enter_async_context(seen_by(browser, deployed.url))
        page = console.page
        await page.goto(link.group())
        await page.get_by_label("Email").fill(EMAIL)
        await page.get_by_label("Password", exact=True).fill(PASSWORD)
        await page.get_by_label("The password again").fill(PASSWORD)
        await console.expect_no_faults("welcome")
        await page.get_by_role("button", name="Begin").click()
        await page.wait_for_url(OPERATORS_HOME)
        yield console


def pytest_itemcollected(item: pytest.Item) -> None:
    """What needs a browser needs more than the gate has. A browser, a deployment and axe on a busy machine take longer
    than other tests: what hangs is ended later."""
    if "chromium" not in getattr(item, "fixturenames", ()):
        return
    item.add_marker(pytest.mark.system)
    if item.get_closest_marker("timeout") is None:
        item.add_marker(pytest.mark.timeout(400))
