"""Every page there is, with something to show: it says what the guide says of it, axe finds nothing serious in light
and in dark; and the guide's pictures are of exactly these pages.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import NamedTuple

import pytest
from playwright.async_api import Browser, ViewportSize

from contracts.desired_state import Model, Pool, Replica
from contracts.fill_in_the_middle import FillInTheMiddle
from contracts.generation import Tier
from tests.console.conftest import CHAT_TOKENIZER, TOKEN, first_owner, fleet_of, serving
from tests.console.figures import month_with_rows
from tests.console.furnished import furnish
from tests.console.gallery import KEPT, page_name, shown
from tests.console.pages import Console, expect, seen_by
from tests.console.routes import addresses, routes
from tests.console.test_playground import REST, TYPED
from tests.deployment import ROOT, Deployment
from tests.fakes.process import FakeEngineProcess, fake_engine

CODE_TOKENIZER = str(ROOT / "models" / "slipstream-code")
"""It fills gaps, as the playground asks at the end of a file too."""
MAX_BYTES = 8_000_000
ENTRY = ("/sign-in", "/welcome")


class View(NamedTuple):
    """shows: texts on the page that only what was put there brings about. search: the address' filters."""

    shows: tuple[str, ...]
    search: str = ""


ORGANIZATION = "/org/$organizationId"
VIEWS = {
    "/account": View(("ada@acme.example", "Password")),
    "/organizations": View(("Acme", "demo")),
    ORGANIZATION: View(("Requests by hour", "Newest requests", "refused")),
    f"{ORGANIZATION}/projects": View(("backend", "editor")),
    f"{ORGANIZATION}/projects/$projectId": View(("website", "backend staging")),
    f"{ORGANIZATION}/projects/$projectId/keys/$keyId": View(("Requests per minute", "of 6")),
    f"{ORGANIZATION}/members": View(("Grace", "billing")),
    f"{ORGANIZATION}/service-accounts": View(("pipeline",)),
    f"{ORGANIZATION}/admin-keys": View(("nightly",)),
    f"{ORGANIZATION}/limits": View(("Budget per month (UTC)", "of 50.00", "of 2,000,000"), "project={projectId}"),
    f"{ORGANIZATION}/priorities": View(("interactive",)),
    f"{ORGANIZATION}/adapters": View(("fake-chat:support-2",)),
    f"{ORGANIZATION}/settings": View(("Acme",)),
    f"{ORGANIZATION}/completions": View(("python", "go")),
    f"{ORGANIZATION}/usage": View(("counted-wide", "counted-narrow", "Cost by day"), "period=30d&by=model"),
    f"{ORGANIZATION}/invoices": View(("Total", "counted-wide", "Rounding"), "month={month}"),
    f"{ORGANIZATION}/requests": View(("refused", "fake-chat")),
    f"{ORGANIZATION}/requests/$requestId": View(("Limited by requests per minute of the key",)),
    f"{ORGANIZATION}/sessions/$sessionId": View(("Turns", "Lost input", "refused")),
    f"{ORGANIZATION}/webhooks": View(("https://example.com/hooks/slipstream",)),
    f"{ORGANIZATION}/webhooks/$webhookId": View(("budget.exhausted", "delivered")),
    f"{ORGANIZATION}/audit": View(("limits.put", "webhook.create")),
    f"{ORGANIZATION}/prefixes": View(("Reusable", "template-")),
    f"{ORGANIZATION}/diagnosis": View(("TTFT and TPOT",)),
    f"{ORGANIZATION}/objectives": View(("chat, short prompts", "Goodput")),
    "/prices": View(("counted-wide", "fake-chat")),
    "/playground/chat": View(("Ended by",)),
    "/playground/autocomplete": View((REST,)),
    "/operations": View(("Goodput", "Error budgets", "By tier, model and pool", "fake-chat")),
    "/operations/requests": View(("refused", "served"), "model=fake-chat"),
    "/operations/requests/$requestId": View(("Why that engine", "chosen", "48 tokens")),
    "/operations/releases": View(("running",)),
    "/operations/releases/$releaseId": View(("Candidate and control", "Failures")),
    "/operations/evals": View(("done", "m")),
    "/operations/evals/runs/$runId": View(("facts", "json")),
    "/operations/evals/comparisons/$comparisonId": View(("What moved",)),
    "/operations/reviews": View(("pairs are waiting for you",)),
    "/operations/reconciliation": View(("By engine", "new-0")),
    "/operations/changes": View(("chunked prefill",)),
    "/operations/shadow": View(("The same text",)),
    "/operations/cascades": View(("large",)),
    "/operations/fleet": View(("fake-0", "fake-1", "healthy")),
    "/operations/fleet/pools/$pool": View(("fake-1", "fake-code")),
    "/operations/fleet/versions": View(("put",)),
    "/operations/fleet/versions/$version": View(("fake-chat", "Go back to this version")),
    "/operations/slo": View(("chat, short prompts", "Goodput")),
    "/operations/diagnosis": View(("TTFT and TPOT", "etraction")),
}


@pytest.fixture(scope="module")
async def engines(chromium: str) -> AsyncIterator[list[FakeEngineProcess]]:
    """That find a part of each prompt in their cache."""
    async with fake_engine(token=TOKEN) as one, fake_engine(token=TOKEN) as other:
        for engine in (one, other):
            await engine.control(cached_tokens=48, ttft_s=0.02, inter_token_s=0.01)
        yield [one, other]


@pytest.fixture(scope="module")
async def shown_all(engines: list[FakeEngineProcess]) -> AsyncIterator[Deployment]:
    """Two replicas that serve a model for chat and one for completions. Its pages show what the guide says and nothing
    else, so that no other module's tests use it."""
    replicas = tuple(Replica(f"fake-{number}", each.url) for number, each in enumerate(engines))
    pool = Pool("fake", "sglang", replicas, 1_000, max_adapters=4, price_per_replica_hour=2.4)
    chat = Model("fake-chat", Tier.CHAT, "fake", 20_000, tokenizer=CHAT_TOKENIZER, engine_model="fake")
    code = Model(
        "fake-code", Tier.AUTOCOMPLETE, "fake", 4_096, engine_model="fake", tokenizer=CODE_TOKENIZER,
        fim=FillInTheMiddle(healing=False, min_confidence=0),  # the fake engine acts on no grammar
    )  # fmt: skip
    async with serving(fleet_of([chat, code], [pool])) as running:
        yield running


@pytest.fixture(scope="module")
async def owner(browser: Browser, shown_all: Deployment) -> AsyncIterator[Console]:
    async with first_owner(browser, shown_all) as console:
        yield console


async def begin(owner: Console, secret: str, model: str) -> None:
    """A playground with that key and model."""
    page = owner.page
    await page.get_by_label("Or use a key you have").fill(secret)
    await page.get_by_role("button", name="Use it").click()
    await page.get_by_role("combobox", name="Model").select_option(model)


async def chat(owner: Console, secret: str) -> None:
    """An answer in the playground, with its figures."""
    page = owner.page
    await begin(owner, secret, "fake-chat")
    await page.get_by_label("Message", exact=True).fill("How long is a piece of string?")
    await page.get_by_role("button", name="Send").click()


async def complete(owner: Console, secret: str, engines: list[FakeEngineProcess]) -> None:
    """Ghost text."""
    page = owner.page
    await begin(owner, secret, "fake-code")
    for engine in engines:
        await engine.control(texts=[REST], tokens=1)
    editor = page.get_by_role("textbox", name="Code")
    await editor.click()
    await editor.press("Control+End")
    await page.keyboard.insert_text(TYPED)


WIDER = """
() => [document.documentElement, ...document.querySelectorAll("main section.table-scroll, main .card, main .notice")]
    .filter(each => each.scrollWidth > each.clientWidth + 1)
    .map(each => [each.getAttribute("aria-label") ?? each.className, each.scrollWidth, each.clientWidth].join(" "))
"""
"""Of the page and its tables and cards: name, width of what is in it, its own width."""
WINDOWS = {"phone": ViewportSize(width=390, height=844), "laptop": ViewportSize(width=1280, height=800)}


async def fits_small_windows(owner: Console) -> None:
    """Nothing of the page lies beyond the edge of a phone or of a small laptop's window, in a table neither."""
    page = owner.page
    before = page.viewport_size
    assert before is not None
    wider = {}
    for name, size in WINDOWS.items():
        await page.set_viewport_size(size)
        wider[name] = await page.evaluate(WIDER)
    await page.set_viewport_size(before)
    assert not any(wider.values()), wider


@pytest.mark.timeout(900)
async def test_every_page_shows_what_the_guide_says_and_is_usable_in_light_and_dark(
    browser: Browser, owner: Console, shown_all: Deployment, engines: list[FakeEngineProcess]
) -> None:
    ids = await furnish(owner, shown_all)
    places = addresses(ids) | {
        "/operations/requests/$requestId": f"/operations/requests/{ids['served']}",
    }
    values = {**ids, "month": f"{month_with_rows():%Y-%m}"}
    wrong: list[str] = []
    for route, view in VIEWS.items():
        await owner.go(places[route] + (f"?{view.search}".format_map(values) if view.search else ""))
        if route == "/playground/chat":
            await chat(owner, shown_all.key)
        if route == "/playground/autocomplete":
            await complete(owner, shown_all.key, engines)
        try:
            for text in view.shows:
                found = owner.page.locator("main").get_by_text(text).locator("visible=true").first
                await expect(found).to_be_visible()
            await owner.expect_no_faults(page_name(route))
            await fits_small_windows(owner)
        except AssertionError as error:
            wrong.append(f"{route}: {str(error).partition('Aria snapshot')[0]}")
    assert not wrong, "\n".join(wrong)
    async with seen_by(browser, shown_all.url) as stranger:
        await stranger.go("/sign-in")
        await stranger.expect_no_faults(page_name("/sign-in"))


def test_every_page_is_looked_at() -> None:
    assert set(VIEWS) == set(routes())


def test_the_guide_shows_every_page_in_light_and_dark_and_no_picture_is_kept_for_nothing() -> None:
    names = shown()
    assert len(names) == len(set(names))
    pages = [page_name(route) for route in (*ENTRY, *VIEWS)]
    assert set(names) == {f"{page}-{theme}.png" for page in pages for theme in ("light", "dark")}
    files = {path.name: path.stat().st_size for path in KEPT.iterdir()}
    assert set(files) == set(names)
    assert sum(files.values()) < MAX_BYTES
