"""What is served next and how good it is, in a real browser: a release started, watched, held, resumed and rolled back;
evals, reviews, reconciliation, changes. Each action leaves one row in the audit log.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from typing import Any
from uuid import UUID

import asyncpg
import pytest
from playwright.async_api import Browser, Locator

from control.releases import store
from control.releases.machine import Event, State
from tests.console.conftest import TOKEN
from tests.console.pages import Console, expect, seen_by
from tests.console.quality import candidate, put_comparisons, put_nights, put_reviews, put_windows
from tests.console.test_tenants import sign_in
from tests.control.releases.rollout.traffic import Load, history
from tests.deployment import Deployment
from tests.fakes.process import FakeEngineProcess, fake_engine

RELEASE = re.compile(r"/operations/releases/([0-9a-f-]{36})")
RUN = re.compile(r"/operations/evals/runs/([0-9a-f-]{36})")
COMPARISON = re.compile(r"/operations/evals/comparisons/([0-9a-f-]{36})")
AUDITED = "SELECT action FROM gateway.audit_log WHERE subject_id = $1 AND actor_kind = 'member' ORDER BY id"


@pytest.fixture(scope="module")
async def pools(chromium: str) -> AsyncIterator[tuple[FakeEngineProcess, FakeEngineProcess]]:
    """The engines of `old` and `new`."""
    async with fake_engine(token=TOKEN) as old, fake_engine(token=TOKEN) as new:
        yield old, new


@pytest.fixture(scope="module")
async def database(
    deployed: Deployment, pools: tuple[FakeEngineProcess, FakeEngineProcess]
) -> AsyncIterator[asyncpg.Connection]:
    """The deployment's, with a model `m` and a candidate for it."""
    async with deployed.database() as connection, candidate(connection, *(engine.url for engine in pools)):
        yield connection


@pytest.fixture(scope="module")
async def comparisons(database: asyncpg.Connection) -> list[UUID]:
    """Comparisons that are done, the newest last."""
    return await put_comparisons(database)


async def started(owner: Console, model: str = "m") -> str:
    """A release of the model to `new` by two stages, made in the form; its id."""
    page = owner.page
    await owner.go("/operations/releases")
    await page.get_by_role("button", name="Start a release").first.click()
    dialog = page.get_by_role("dialog")
    await dialog.get_by_label("Model", exact=True).select_option(model)
    await dialog.get_by_label("Candidate pool").select_option("new")
    await dialog.get_by_label("Stages, in percent of sessions").fill("25, 50, 40")
    await dialog.get_by_text("Each stage must be above the one before.").wait_for()
    assert await dialog.get_by_role("button", name="Start").is_disabled()
    await dialog.get_by_label("Stages, in percent of sessions").fill("25, 50, 100")
    await dialog.get_by_label("Minimum sessions per arm, by stage").fill("2000, 3000")
    await dialog.get_by_role("button", name="Start").click()
    await page.wait_for_url(RELEASE)
    await owner.settled()
    found = RELEASE.search(page.url)
    assert found is not None
    return found.group(1)


async def by_hand(owner: Console, label: str, reason: str) -> None:
    """Press a release's button, say why, and go on."""
    await owner.page.get_by_role("button", name=f"{label}…").click()
    dialog = owner.page.get_by_role("dialog")
    button = dialog.get_by_role("button", name=label)
    assert await button.is_disabled(), "it wants a reason"
    await dialog.get_by_label("Reason").fill(reason)
    await button.click()
    await dialog.wait_for(state="hidden")


async def served(database: asyncpg.Connection, release_id: str, load: Load, sessions: int) -> None:
    """Sessions of both arms, as the gateways would have written them."""
    release = await store.locked(database, UUID(release_id))
    assert release is not None
    assert await load.serve(database, release, sessions) > 0


async def audited(database: asyncpg.Connection, subject_id: str) -> list[str]:
    """What somebody who is signed in did to it, in order."""
    rows = await database.fetch(AUDITED, subject_id)
    return [row["action"] for row in rows]


def figure(owner: Console, name: str) -> Locator:
    """One of the figures in a page's row."""
    return owner.page.locator(f".stat:has(dt:text-is('{name}')) dd")


async def test_a_release_is_started_watched_held_resumed_and_rolled_back(
    owner: Console, database: asyncpg.Connection
) -> None:
    page = owner.page
    await history(database)
    release = await started(owner)
    await expect(figure(owner, "State")).to_have_text("running")
    load = Load()
    await served(database, release, load, 120)
    await page.get_by_role("heading", name="Candidate and control").wait_for()
    await page.get_by_role("row", name=re.compile("harm Failures sessions with a fault")).wait_for()
    await served(database, release, load, 200)
    track = page.get_by_role("list", name="Stages")
    await expect(track.get_by_role("listitem").first).to_contain_text(
        re.compile(r"candidate (2[5-9]|3[0-2])\d of 2,000")
    )
    await expect(track.get_by_role("listitem").first).to_contain_text(re.compile("about .+ left at this rate"))
    latency = page.get_by_role("table", name="Latency of candidate and baseline")
    both = re.compile(r"^Time to first token, p50 [\d.]+ m?s [\d.]+ m?s [+−]?[\d.]+ %$")
    await expect(latency.get_by_role("row", name=both)).to_be_visible()
    await expect(page.get_by_role("table", name="Steps").get_by_role("row")).to_have_count(3)  # start and begin
    await page.get_by_text(re.compile("^All steps, with looks at the evidence")).click()
    every = page.get_by_role("table", name="Every step")
    await expect(every.get_by_role("row", name=re.compile("observe")).first).to_be_visible()
    await owner.expect_no_faults("a running release")

    await by_hand(owner, "Hold", "the big customer has its demo")
    await page.get_by_text("The release is held in this stage").wait_for()
    await by_hand(owner, "Resume", "it is over")
    await expect(figure(owner, "State")).to_have_text("running")
    await by_hand(owner, "Promote to 50 %", "checked by hand")
    await expect(figure(owner, "Share now")).to_contain_text("50 %")
    await page.get_by_role("button", name="Roll back…").click()
    await page.get_by_text("new gets no more sessions of m").wait_for()
    await owner.expect_no_faults("rolling back")
    await page.get_by_role("button", name="Cancel").click()
    await by_hand(owner, "Roll back", "tried by hand")
    await page.get_by_text("Rolled back: old serves all of m").wait_for()
    await expect(track.get_by_role("listitem").last).to_contain_text("not reached")
    assert await track.get_by_text("to come").count() == 0
    assert await page.get_by_role("button", name="Roll back…").count() == 0
    assert await audited(database, release) == [
        "release.start", "release.hold", "release.resume", "release.promote", "release.roll_back"
    ]  # fmt: skip
    await owner.go("/operations/releases?model=m&state=rolled_back")
    await page.get_by_role("row", name=re.compile("rolled back.*tried by hand")).wait_for()
    await owner.expect_no_faults("releases")


async def test_a_release_whose_model_nobody_asks_waits_and_says_for_what(
    owner: Console, database: asyncpg.Connection
) -> None:
    release = await started(owner, "large")
    await expect(owner.page.get_by_text("The release is waiting to begin; no traffic is split yet")).to_be_visible()
    await expect(owner.page.get_by_text("answered nothing for 'large' in 7 days")).to_be_visible()
    assert await owner.page.get_by_role("button", name="Hold…").count() == 0
    await owner.expect_no_faults("a waiting release")
    await by_hand(owner, "Roll back", "nobody asks")
    await expect(figure(owner, "State")).to_have_text("rolled back")
    assert await audited(database, release) == ["release.start", "release.roll_back"]


async def test_a_worse_candidate_is_seen_to_be_rolled_back_by_its_evidence(
    owner: Console, database: asyncpg.Connection
) -> None:
    release = await started(owner)
    await expect(figure(owner, "State")).to_have_text("running")
    await served(database, release, Load(seed=3, failing=0.4), 150)
    told = owner.page.get_by_role("alert")
    await expect(told).to_contain_text("worse than tolerated: failures")
    row = owner.page.get_by_role("row", name=re.compile("harm Failures"))
    await expect(row).to_contain_text("reached")
    await owner.page.get_by_label("Check", exact=True).select_option(label="Failures: sessions with a fault")
    assert "check=" in owner.page.url, "what is drawn has an address"
    await owner.expect_no_faults("a release rolled back by itself")


async def test_a_run_is_started_and_cancelled(owner: Console, database: asyncpg.Connection) -> None:
    page = owner.page
    await owner.go("/operations/evals")
    await page.get_by_role("button", name="Start a run").click()
    dialog = page.get_by_role("dialog")
    await dialog.get_by_label("Model", exact=True).select_option("fake")
    await dialog.get_by_label("facts", exact=True).check()
    await dialog.get_by_label("Items per slice").fill("100000")
    await owner.expect_no_faults("the form of a run")
    await dialog.get_by_role("button", name="Start").click()
    await page.wait_for_url(RUN)
    found = RUN.search(page.url)
    assert found is not None
    await expect(figure(owner, "Answered")).not_to_have_text(re.compile("^0 "))
    await page.get_by_role("button", name="Cancel…").click()
    await page.get_by_role("dialog").get_by_role("button", name="Cancel the run").click()
    await expect(figure(owner, "Status")).to_have_text("cancelled")
    assert await page.get_by_role("button", name="Cancel…").count() == 0
    assert await audited(database, found.group(1)) == ["eval_run.create", "eval_run.cancel"]
    await owner.expect_no_faults("a cancelled run")


async def test_two_pools_are_compared_until_somebody_cancels(
    owner: Console, database: asyncpg.Connection, pools: tuple[FakeEngineProcess, FakeEngineProcess]
) -> None:
    page = owner.page
    for engine in pools:  # or it is done before it is cancelled
        await engine.control(ttft_s=5.0)
    await owner.go("/operations/evals?view=comparisons")
    await page.get_by_role("button", name="Compare two pools").click()
    dialog = page.get_by_role("dialog")
    await dialog.get_by_label("Model", exact=True).select_option("m")
    await dialog.get_by_label("Baseline").select_option("old")
    await dialog.get_by_label("Candidate").select_option("new")
    await dialog.get_by_label("facts", exact=True).check()
    await dialog.get_by_label("Margin, points").fill("100")
    await dialog.get_by_text("A percentage from 0.1 to 99.9.").wait_for()
    await dialog.get_by_label("Margin, points").fill("3")
    await dialog.get_by_role("button", name="Compare").click()
    await page.wait_for_url(COMPARISON)
    found = COMPARISON.search(page.url)
    assert found is not None
    await expect(figure(owner, "Margin")).to_have_text("−3.0 points")
    await page.get_by_role("button", name="Cancel…").click()
    await page.get_by_role("dialog").get_by_role("button", name="Cancel the comparison").click()
    await expect(figure(owner, "Status")).to_have_text("cancelled")
    for engine in pools:
        await engine.control(ttft_s=0.0)
    await page.get_by_text("The comparison ended without a decision").wait_for()
    assert await audited(database, found.group(1)) == ["eval_comparison.create", "eval_comparison.cancel"]


async def test_nights_name_the_slice_that_is_worse_and_undo_the_promotion_that_changed_it(
    owner: Console, database: asyncpg.Connection, comparisons: list[UUID]
) -> None:
    page = owner.page
    release = await promoted(database)
    await put_nights(database, release)
    await owner.go("/operations/evals?view=slices&model=m")
    newest = page.get_by_role("table", name="Nights").get_by_role("row").nth(1)
    await expect(newest).to_contain_text("fail")
    await expect(newest).to_contain_text("1 of 2 slices worse: json. json: -45.0 points over 40 items")
    await expect(newest).to_contain_text("pool: old -> new")
    await page.get_by_text("Next night").wait_for()
    marks = page.get_by_role("list", name="Verdicts of 9 nights").last.get_by_role("listitem")
    await expect(marks.last).to_have_text(re.compile("fail"))
    await owner.expect_no_faults("nights")
    await newest.get_by_role("button", name="Roll back…").click()
    await page.get_by_role("dialog").get_by_role("button", name="Roll back").click()
    await expect(newest.get_by_role("button", name="Roll back…")).to_have_count(0)
    found = await store.locked(database, release)
    assert found is not None
    assert found.state is State.ROLLED_BACK
    model = (await store.fleet(database)).model("m")
    assert model is not None
    assert model.pool == "old"
    assert await audited(database, str(release)) == ["release.roll_back"]


async def promoted(database: asyncpg.Connection) -> UUID:
    """A release by which the model `m` is served by `new`."""
    fixed: dict[str, Any] = {"policy": "{}", "thresholds": "{}"}
    async with database.transaction():
        made = await store.create(
            database, "tests", model="m", candidate_pool="new", baseline_pool="old", control_pool="",
            stages=[0.5, 1.0], shadow_share=0.0, shadow_least=0, slices=[], margins="{}",
        )  # fmt: skip
        made = await store.step(database, made, Event.BEGIN, reason="begun", actor=None, **fixed)
        await store.step(database, made, Event.PROMOTE, reason="by hand", actor=None)
    return made.id


async def test_a_comparison_shows_what_moved_and_slices_their_bounds(owner: Console, comparisons: list[UUID]) -> None:
    page = owner.page
    await owner.go(f"/operations/evals/comparisons/{comparisons[-1]}?slice=json")
    await page.get_by_role("heading", name="What moved").wait_for()
    moved = page.get_by_role("table", name="What moved")
    await expect(moved.get_by_role("row").nth(1)).to_contain_text("1 → 0")
    await moved.get_by_role("row").nth(1).get_by_role("button").click()
    dialog = page.get_by_role("dialog")
    await dialog.get_by_text("I do not know.").wait_for()
    await owner.expect_no_faults("an item that moved")
    await page.keyboard.press("Escape")
    await owner.expect_no_faults("a comparison")
    await owner.go("/operations/evals?view=slices&model=m")
    await page.get_by_role("img", name=re.compile("^json: differences found by comparisons")).wait_for()
    assert await page.get_by_text("the gate’s bound −2.0 points").count() == 2
    await owner.expect_no_faults("slices over time")
    await owner.go("/operations/evals?view=comparisons")
    await page.get_by_role("link", name="m", exact=True).first.wait_for()
    await owner.expect_no_faults("comparisons")
    await owner.go("/operations/evals?status=done")
    await page.get_by_role("row", name=re.compile("a comparison, as candidate")).first.get_by_role("link").first.click()
    await page.wait_for_url(RUN)
    await owner.settled()
    await owner.expect_no_faults("a run")


LONGER = """async height => [...document.querySelectorAll("section[aria-label]")].some(
    each => each.getAttribute("aria-label") === "Items" && each.scrollHeight > height)"""


async def test_of_hundreds_of_items_only_those_in_sight_are_rows(
    owner: Console, database: asyncpg.Connection, comparisons: list[UUID]
) -> None:
    page = owner.page
    run = await database.fetchval("SELECT candidate_run FROM evals.comparisons WHERE id = $1", comparisons[-1])
    total = await database.fetchval("SELECT count(*) FROM evals.items WHERE run_id = $1", run)
    await owner.go(f"/operations/evals/runs/{run}")
    table = page.get_by_role("table", name="Items", exact=True)
    more = page.locator(".table-frame", has=table).get_by_role("button", name="Load more")
    region = page.get_by_role("region", name="Items", exact=True)
    for _ in range(100, total, 100):
        await expect(table).to_have_attribute("aria-rowcount", "-1")  # nobody knows yet how many there are
        height = await region.evaluate("each => each.scrollHeight")
        await more.click()
        await owner.until(LONGER, height)
    await expect(table).to_have_attribute("aria-rowcount", str(total + 1))
    rows = table.locator("tbody tr:not(.table-spacer)")
    assert 0 < await rows.count() < total // 2
    first = await rows.first.inner_text()
    await region.evaluate("each => each.scrollTo(0, each.scrollHeight)")
    await expect(rows.first).not_to_have_text(first)
    assert 0 < await rows.count() < total // 2


async def test_pairs_are_voted_on_by_key_and_by_button_until_none_is_left(
    owner: Console, database: asyncpg.Connection, deployed: Deployment
) -> None:
    page = owner.page
    await database.execute("DELETE FROM gateway.reviews")
    await owner.go("/operations/reviews")
    await page.get_by_role("heading", name="Nothing to review").wait_for()
    await owner.expect_no_faults("no reviews")
    await put_reviews(database, deployed.database_url)
    await page.get_by_text("3 pairs are waiting for you").wait_for()  # by itself
    assert await page.get_by_text(re.compile("you preferred")).count() == 0
    await owner.expect_no_faults("a pair")
    await page.keyboard.press("1")
    await page.get_by_text("2 pairs are waiting for you").wait_for()
    await page.get_by_text(re.compile("you preferred the (candidate|baseline)")).wait_for()
    await page.get_by_label("Vote with the keys 1 to 5").uncheck()
    await page.get_by_role("heading", level=1).click()
    await page.keyboard.press("1")
    await page.get_by_role("button", name="Both are good").click()
    await page.get_by_text("1 pair is waiting for you").wait_for()
    await page.get_by_label("Vote with the keys 1 to 5").check()
    await page.get_by_role("button", name="Skip", exact=True).click()
    await page.get_by_role("heading", name="You have voted on every pair").wait_for()
    sums = page.get_by_role("table", name="Votes by release, model and stage").get_by_role(
        "row", name=re.compile("^m ")
    )
    await expect(sums.get_by_role("cell").nth(2)).to_have_text("25 %")  # the stage
    await expect(sums.get_by_role("cell").nth(7)).to_have_text("1")  # both good
    await expect(sums.get_by_role("cell").nth(9)).to_have_text("1")  # skipped
    choices = await database.fetch("SELECT choice FROM gateway.review_votes ORDER BY voted_at")
    assert [row["choice"] for row in choices] == ["left", "both", "skip"], "a key that is switched off votes nothing"
    rows = await database.fetchval(
        "SELECT count(*) FROM gateway.audit_log WHERE action = 'review.vote' AND actor_kind = 'member'"
    )
    assert rows == 3
    await owner.expect_no_faults("reviews, all voted on")


async def test_reconciliation_tells_which_engine_differs_and_what_to_do(
    owner: Console, database: asyncpg.Connection
) -> None:
    page = owner.page
    await owner.go("/operations/reconciliation")
    await put_windows(database)
    engines = page.get_by_role("table", name="By engine")
    await expect(engines.get_by_role("row", name=re.compile("^new-0"))).to_contain_text("+120−40")
    windows = page.get_by_role("table", name="Windows")
    await expect(windows.get_by_role("row", name=re.compile(r"new-0.*\+120"))).to_contain_text(
        "Attempts with inexact token counts"
    )
    await owner.expect_no_faults("reconciliation")
    await page.get_by_label("Show").select_option("differ")
    await expect(windows.get_by_role("row")).to_have_count(3)
    assert "drift=true" in page.url


async def test_a_change_is_noted_and_forgotten(owner: Console, database: asyncpg.Connection) -> None:
    page = owner.page
    await owner.go("/operations/changes")
    await owner.expect_no_faults("no changes")
    await page.get_by_role("button", name="Record a change").first.click()
    dialog = page.get_by_role("dialog")
    await dialog.get_by_label("What is changed").fill("prefix caching")
    await dialog.get_by_label("Expected change, milliseconds").fill("-250")
    await owner.expect_no_faults("the form of a change")
    await dialog.get_by_role("button", name="Record").click()
    row = page.get_by_role("row", name=re.compile("prefix caching"))
    await expect(row).to_contain_text("−250 ms")
    await owner.expect_no_faults("changes")
    subject = str(await database.fetchval("SELECT id FROM gateway.changes WHERE name = 'prefix caching'"))
    await row.get_by_role("button", name="Actions for prefix caching").click()
    await page.get_by_role("menuitem", name="Delete…").click()
    await page.get_by_role("dialog").get_by_role("button", name="Delete").click()
    await row.wait_for(state="detached")
    assert await audited(database, subject) == ["change.create", "change.delete"]


async def test_shadow_and_cascades_tell_what_was_measured(owner: Console, database: asyncpg.Connection) -> None:
    page = owner.page
    await owner.go("/operations/cascades")
    await page.get_by_role("row", name=re.compile("large m always")).get_by_role("button").click()
    await page.get_by_text("No comparison has passed").wait_for()
    await owner.expect_no_faults("approving a cascade")
    await page.keyboard.press("Escape")
    await owner.expect_no_faults("cascades")
    await owner.go("/operations/shadow?model=m")
    await page.get_by_role("row", name=re.compile("The same text ")).wait_for()
    await owner.expect_no_faults("shadow")


async def test_a_phone_shows_every_page_without_scrolling_sideways(
    browser: Browser, owner: Console, deployed: Deployment, comparisons: list[UUID]
) -> None:
    async with deployed.database() as connection:
        release = await connection.fetchval("SELECT id FROM gateway.releases ORDER BY created_at LIMIT 1")
        run = await connection.fetchval("SELECT baseline_run FROM evals.comparisons LIMIT 1")
    async with seen_by(browser, deployed.url, width=390, height=844) as phone:
        await sign_in(phone)
        for path in (
            "releases", f"releases/{release}", "evals", "evals?view=slices", f"evals/runs/{run}",
            f"evals/comparisons/{comparisons[0]}", "reviews", "reconciliation", "changes", "shadow", "cascades",
        ):  # fmt: skip
            await phone.go(f"/operations/{path}")
            wide = await phone.page.evaluate("document.documentElement.scrollWidth")
            assert wide <= 390, f"{path} is {wide} pixels wide"
            if path in ("evals?view=slices", f"releases/{release}"):
                name = f"phone {re.sub('[^a-z]+', ' ', path)}"
                await phone.expect_no_faults(name.strip())
