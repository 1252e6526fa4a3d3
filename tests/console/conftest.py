"""A deployment on fake engines that most tests share, and a real Chromium that somebody is signed in with."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
from collections.abc import AsyncIterator, Mapping
from typing import Any, NamedTuple

import aiohttp
import asyncpg
import msgspec
import pytest
from playwright.async_api import Browser, StorageState, async_playwright

from contracts.desired_state import Model, Pool, Replica
from contracts.generation import Tier
from tests.console.pages import OPERATORS_HOME, Console, seen_by
from tests.control.api.lone_gateway import lone_gateway
from tests.control.api.people import People
from tests.deployment import ROOT, Deployment, deployment
from tests.fakes.process import FakeEngineProcess, fake_engine

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


@pytest.fixture(scope="module")
async def people(module_postgres_url: str, valkey_url: str, chromium: str) -> AsyncIterator[People]:
    """Of every role, at a gateway of this module's own that has neither router nor worker."""
    async with lone_gateway(module_postgres_url, valkey_url) as gateway, aiohttp.ClientSession() as session:
        database = await asyncpg.connect(module_postgres_url)
        made = People(session, gateway.url, database, gateway.pepper)
        await made.move_in()
        yield made
        await database.close()


@contextlib.asynccontextmanager
async def serving(fleet: Mapping[str, str]) -> AsyncIterator[Deployment]:
    """A gateway, a worker and a router in front of that fleet, whose engines know TOKEN. Its webhooks may go to this
    machine."""
    environment = {
        **fleet,
        "SLIPSTREAM_SLO__ROLL_UP_EVERY_S": "2",
        "SLIPSTREAM_GATEWAY__ADMIN__WEBHOOKS__ALLOW_PRIVATE_ADDRESSES": "true",
    }
    async with deployment(environment=environment, token=TOKEN) as running:
        yield running


class Engines(NamedTuple):
    """The fake engines of the shared deployment."""

    fake: FakeEngineProcess
    """Of the pool and the model `fake`."""
    pair: tuple[FakeEngineProcess, FakeEngineProcess]
    """`pair-0` and `pair-1`, of the pool and the model `pair`."""
    play: FakeEngineProcess
    """Of the pool `play` with the models `play-chat` and `play-code`."""


@pytest.fixture(scope="session")
async def fakes(chromium: str) -> AsyncIterator[Engines]:
    """Tests leave them as they were."""
    async with contextlib.AsyncExitStack() as stack:
        made = [await stack.enter_async_context(fake_engine(token=TOKEN)) for _ in range(4)]
        yield Engines(made[0], (made[1], made[2]), made[3])


@pytest.fixture(scope="session")
async def deployed(fakes: Engines) -> AsyncIterator[Deployment]:
    """Tests that change the fleet change what nobody else looks at, or restore it; organizations are their own."""
    context: dict[str, Any] = {"context_tokens": 20_000, "tokenizer": CHAT_TOKENIZER}
    models = [
        Model("fake", Tier.CHAT, "fake", **context),
        Model("pair", Tier.CHAT, "pair", engine_model="fake", **context),
        Model("play-chat", Tier.CHAT, "play", engine_model="fake", **context),
        Model("play-code", Tier.AUTOCOMPLETE, "play", 4_096, engine_model="fake"),
    ]
    pair = tuple(Replica(f"pair-{number}", engine.url) for number, engine in enumerate(fakes.pair))
    pools = [
        Pool("fake", "sglang", (Replica("fake-0", fakes.fake.url),), 1_000, max_adapters=4),
        Pool("pair", "sglang", pair, 1_000),
        # its engines fill gaps that come as text
        Pool("play", "embedded", (Replica("play-0", fakes.play.url),), 1_000),
    ]
    async with serving(fleet_of(models, pools)) as running:
        yield running


def fleet_of(models: list[Model], pools: list[Pool]) -> dict[str, str]:
    """Environment that makes them the fleet."""
    return {
        "SLIPSTREAM_MODELS": msgspec.json.encode(models).decode(),
        "SLIPSTREAM_POOLS": msgspec.json.encode(pools).decode(),
    }


@contextlib.asynccontextmanager
async def first_owner(browser: Browser, running: Deployment) -> AsyncIterator[Console]:
    """The first account, made by the link of the first start."""
    link = LINK.search(running.output)
    assert link is not None, running.output
    async with seen_by(browser, running.url) as console:
        page = console.page
        await page.goto(link.group())
        await page.get_by_label("Email").fill(EMAIL)
        await page.get_by_label("Password", exact=True).fill(PASSWORD)
        await page.get_by_label("Repeat the password").fill(PASSWORD)
        await console.expect_no_faults("welcome")
        await page.get_by_role("button", name="Begin").click()
        await page.wait_for_url(OPERATORS_HOME)
        yield console


@pytest.fixture(scope="session")
async def signed_in(browser: Browser, deployed: Deployment) -> AsyncIterator[StorageState]:
    """What a browser keeps of the first account."""
    async with first_owner(browser, deployed) as console:
        yield await console.page.context.storage_state()


@pytest.fixture(scope="module")
async def owner(browser: Browser, deployed: Deployment, signed_in: StorageState) -> AsyncIterator[Console]:
    """The first account, in a window of this module's own."""
    async with seen_by(browser, deployed.url, kept=signed_in) as console:
        await console.go("/operations")
        yield console


def pytest_itemcollected(item: pytest.Item) -> None:
    """What needs a browser needs more than the gate has."""
    if "chromium" not in getattr(item, "fixturenames", ()):
        return
    item.add_marker(pytest.mark.system)
    if "deployed" in getattr(item, "fixturenames", ()):
        item.add_marker(pytest.mark.xdist_group("console"))
