"""The playground in a real browser: ghost text that is taken and rejected, chat with a tool and with a schema, what is
measured of both; and the calls it offers to copy, run as a user would.
"""

from __future__ import annotations

import asyncio
import os
import re
import sys
from collections.abc import AsyncIterator, Sequence
from typing import Any

import asyncpg
import msgspec
import pytest
from playwright.async_api import Browser, Locator

from tests.console.conftest import EMAIL, PASSWORD, Engines
from tests.console.pages import ANY_HOME, Console, expect, seen_by
from tests.deployment import Deployment
from tests.fakes.process import FakeEngineProcess
from tests.waiting import eventually

TYPED, REST = "le", "n(values)"
"""Behind what stands in the editor at first: what is typed, and what the engine goes on with."""
TOOL = {
    "type": "function",
    "function": {
        "name": "add",
        "parameters": {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}}},
    },
}
SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
OUTPUT_OF_A_MILLION = "1000"
SECONDS = 60
"""A guard, not a measure."""


@pytest.fixture(scope="module")
async def engine(fakes: Engines) -> AsyncIterator[FakeEngineProcess]:
    """Serves both models, in no hurry: there is something to measure."""
    # so far apart that a busy machine's browser still gets them one after the other: the page tells their rate
    await fakes.play.control(ttft_s=0.02, inter_token_s=0.05)
    yield fakes.play
    await fakes.play.control(reset=True)


@pytest.fixture(scope="module")
async def priced(owner: Console) -> Console:
    """Both models have a price; the clipboard can be read."""
    page = owner.page
    await page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    await owner.go("/prices")
    for model in ("play-chat", "play-code"):
        await page.get_by_role("button", name="New price").first.click()
        dialog = page.get_by_role("dialog")
        await dialog.get_by_label("Model", exact=True).fill(model)
        await dialog.get_by_label("Input, of a million tokens").fill("2")
        await dialog.get_by_label("Output, of a million tokens").fill(OUTPUT_OF_A_MILLION)
        await dialog.get_by_role("button", name="Make price").click()
        await page.get_by_role("table", name="Prices").get_by_role("row", name=re.compile(model)).wait_for()
    return owner


async def opened(console: Console, deployed: Deployment, name: str, model: str) -> None:
    """A playground, with the deployment's key and that model."""
    await console.go(f"/playground/{name}")
    await console.page.get_by_text("Choose a key first, because the call names one of its models.").wait_for()
    await console.page.get_by_label("Or use a key you have").fill(deployed.key)
    await console.page.get_by_role("button", name="Use it").click()
    await console.page.get_by_role("combobox", name="Model").select_option(model)


def figure(console: Console, name: str) -> Locator:
    """One of the figures in the page's row."""
    return console.page.locator(f".stat:has(dt:text-is('{name}')) dd")


async def expect_measured(console: Console, tokens: int) -> None:
    """The browser's figures and the gateway's: what was measured, and a price that is what was billed."""
    page = console.page
    await expect(figure(console, "Tokens")).to_have_text(re.compile(rf"^{tokens}\s*out; [1-9]\d* in, 0 cached"))
    await expect(figure(console, "First token")).to_have_text(re.compile(r"^\d[\d.]* m?s\s*in this browser"))
    # tokens that came within 20 ms have no pace
    speed = re.match(r"(–|[\d.]+)\s*tokens/s", await figure(console, "Speed").inner_text())
    assert speed is not None
    assert speed[1] == "–" or float(speed[1]) > 0
    billed = page.get_by_text(re.compile("^Billed "))
    await billed.wait_for()
    price = (await figure(console, "Price").inner_text()).split()[0]
    assert (await billed.inner_text()).startswith(f"Billed {price}\u00a0USD · request req_")
    assert float(price) > tokens * int(OUTPUT_OF_A_MILLION) / 1_000_000
    phases = await page.locator(".waterfall li span:first-child").all_inner_texts()
    assert {"auth", "route", "first token", "decode"} & set(phases)


async def typed(console: Console, engine: FakeEngineProcess) -> list[str]:
    """Behind what stands in the editor, in one go, so that it is one request; the lines that stand there then. How they
    go on the engine knows by heart."""
    editor = console.page.get_by_role("textbox", name="Code")
    lines = await editor.locator(".cm-line").all_text_contents()
    await engine.control(file="\n".join(lines) + TYPED + REST)
    await editor.click()
    await editor.press("Control+End")
    await console.page.keyboard.insert_text(TYPED)
    return [*lines[:-1], lines[-1] + TYPED]


async def reported(deployed: Deployment, wanted: int) -> list[asyncpg.Record]:
    """What editors told, once there is so much of it."""
    async with deployed.database() as database:

        async def enough() -> list[asyncpg.Record] | None:
            rows = await database.fetch("SELECT * FROM gateway.completion_events ORDER BY request_id, type")
            return list(rows) if len(rows) >= wanted else None

        return await eventually(enough) or []


async def copied(console: Console, language: str, label: str) -> str:
    """What the button puts on the clipboard."""
    page = console.page
    await page.get_by_role("tab", name=language).click()
    await page.get_by_role("region", name=label).get_by_role("button", name="Copy").click()
    await page.get_by_role("button", name="Copied").wait_for()
    return str(await page.evaluate("navigator.clipboard.readText()"))


async def answered(command: Sequence[str], key: str) -> str:
    """What a program printed that had the key in its environment and ended well."""
    process = await asyncio.create_subprocess_exec(
        *command, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
        env={"PATH": os.environ["PATH"], "SLIPSTREAM_API_KEY": key},
    )  # fmt: skip
    async with asyncio.timeout(SECONDS):
        output, errors = await process.communicate()
    assert process.returncode == 0, errors.decode()
    return output.decode()


async def expect_same_call(console: Console, deployed: Deployment, text: str) -> None:
    """Both programs that the page offers answer with that text."""
    command = await copied(console, "curl", "As a curl command")
    streamed = await answered(["sh", "-c", command], deployed.key)
    events = [line.removeprefix("data: ") for line in streamed.splitlines() if line.startswith("data: ")]
    assert events[-1] == "[DONE]", streamed
    choices = [choice for event in events[:-1] for choice in msgspec.json.decode(event)["choices"]]
    assert "".join(each.get("text") or each.get("delta", {}).get("content") or "" for each in choices) == text
    program = await copied(console, "Python", "As Python")
    assert await answered([sys.executable, "-c", program], deployed.key) == text


async def test_a_completion_is_taken_another_rejected_and_both_are_reported(
    priced: Console, deployed: Deployment, engine: FakeEngineProcess
) -> None:
    page = priced.page
    editor, ghost = page.get_by_role("textbox", name="Code"), page.locator(".cm-ghost")
    for key, taken_count, added in (("Tab", 1, REST), ("Escape", 0, "")):
        await opened(priced, deployed, "autocomplete", "play-code")
        lines = await typed(priced, engine)
        await expect(ghost).to_have_text(REST)
        await expect_measured(priced, tokens=len(REST) // 3)
        if key == "Tab":
            await priced.expect_no_faults("ghost text")
            await editor.focus()
            shown = await page.get_by_role("region", name="As a curl command").inner_text()
        await page.keyboard.press(key)
        await expect(ghost).to_have_count(0)
        await expect(editor.locator(".cm-line")).to_have_text([*lines[:-1], lines[-1] + added])
        await expect(page.get_by_text(f"1 shown, {taken_count} accepted on this page.")).to_be_visible()
        if key == "Tab":
            assert await page.get_by_role("region", name="As a curl command").inner_text() == shown, "the call as sent"
    taken, rejected = (rows := await reported(deployed, 4))[:2], rows[2:]
    assert [row["type"] for row in taken] == ["select", "view"]
    assert [row["type"] for row in rejected] == ["dismiss", "view"]
    assert taken[0]["request_id"] == taken[1]["request_id"] != rejected[0]["request_id"] == rejected[1]["request_id"]
    assert taken[0]["characters"] == len(REST)
    async with deployed.database() as database:
        made = await database.fetchval(
            "SELECT project_id FROM gateway.usage_events WHERE request_id = $1", taken[0]["request_id"]
        )
    assert {row["project_id"] for row in rows} == {made}, "reports join the project that made the completion"
    await expect_same_call(priced, deployed, REST)


async def test_what_is_typed_on_against_the_ghost_rejects_it(
    priced: Console, deployed: Deployment, engine: FakeEngineProcess
) -> None:
    page = priced.page
    before = len(await reported(deployed, 0))
    await opened(priced, deployed, "autocomplete", "play-code")
    await typed(priced, engine)
    ghost = page.locator(".cm-ghost")
    await expect(ghost).to_have_text(REST)
    await page.keyboard.insert_text(REST[:3])
    await expect(ghost).to_have_text(REST[3:])
    await page.keyboard.insert_text("?")
    rows = await reported(deployed, before + 2)
    assert [row["type"] for row in rows[before : before + 2]] == ["dismiss", "view"]


async def test_a_chat_shows_a_tools_call_and_an_answer_by_a_schema(
    priced: Console, deployed: Deployment, engine: FakeEngineProcess
) -> None:
    page = priced.page
    await opened(priced, deployed, "chat", "play-chat")
    await engine.control(file="", tool="add", texts=['{"a": 1', ', "b": 2', "}"], tokens=3)
    await page.get_by_label("Tools (JSON)").fill("[{")
    await page.get_by_label("Message", exact=True).fill("what is 1 + 2?")
    assert await page.get_by_role("button", name="Send").is_disabled(), "that is no JSON"
    await page.get_by_label("Tools (JSON)").fill(msgspec.json.encode([TOOL]).decode())
    await page.get_by_role("button", name="Send").click()
    call = page.get_by_role("region", name="Call of add")
    await expect(call.locator("code")).to_have_text('add({"a": 1, "b": 2})')
    await expect(page.get_by_text("Ended by tool_calls")).to_be_visible()
    await expect_measured(priced, tokens=3)
    await priced.expect_no_faults("playground chat with a tool")
    assert (await asked(engine))["tools"] == [TOOL]
    offered = await page.get_by_role("combobox", name="Model").get_by_role("option").all_text_contents()
    assert "play-chat" in offered
    assert "play-code" not in offered, "it is not for chat"

    await engine.control(tool="", texts=['{"city"', ': "Oslo"', "}"])
    await page.get_by_role("button", name="Start over").click()
    await page.get_by_label("Tools (JSON)").fill("")
    await page.get_by_label("JSON schema of the answer").fill(msgspec.json.encode(SCHEMA).decode())
    await page.get_by_label("Message", exact=True).fill("the capital of Norway")
    await page.get_by_role("button", name="Send").click()
    answer = page.locator('.turns li[data-role="assistant"] p')
    await expect(answer).to_have_text('{"city": "Oslo"}')
    await expect(page.get_by_text("Ended by stop")).to_be_visible()
    await expect_measured(priced, tokens=3)
    await priced.expect_no_faults("playground chat with a schema")
    asked_for = (await asked(engine))["response_format"]
    assert asked_for["json_schema"]["schema"] == SCHEMA
    shown = page.get_by_role("region", name="As a curl command")
    await expect(shown).to_contain_text("the capital of Norway")
    await expect(shown).not_to_contain_text('"assistant"')
    await page.get_by_label("Message", exact=True).fill("it's \"Oslo\" again, isn't it? $HOME `x`")
    await expect_same_call(priced, deployed, '{"city": "Oslo"}')


async def asked(engine: FakeEngineProcess) -> dict[str, Any]:
    """The newest request's body, as the engine got it."""
    body = (await engine.recorded())[-1]["body"]
    assert isinstance(body, dict)
    return body


async def test_phases_are_told_while_it_runs_and_a_chart_tells_its_numbers(
    priced: Console, deployed: Deployment, engine: FakeEngineProcess
) -> None:
    page = priced.page
    await opened(priced, deployed, "chat", "play-chat")
    await engine.control(file="", tool="", texts=["one", "two"], tokens=2, inter_token_s=SECONDS)
    message = page.get_by_label("Message", exact=True)
    await message.fill("count")
    await message.press("Shift+Enter")
    await page.keyboard.insert_text("to two")
    await message.press("Enter")
    await expect(page.locator('.turns li[data-role="user"] p')).to_have_text("count\nto two")
    await page.get_by_role("heading", name="Where the time goes").wait_for()
    await expect(page.locator('.turns li[data-role="assistant"] p')).to_have_text("one")
    phases = page.locator(".waterfall li span:first-child")
    await expect(phases.filter(has_text="decode")).to_be_visible()
    assert {"auth", "route", "engine", "first token", "decode"} <= set(await phases.all_inner_texts())
    await priced.expect_no_faults("playground chat as it runs")
    await page.get_by_role("button", name="Stop").click()
    await page.get_by_role("heading", name="Where the time went").wait_for()
    await engine.control(inter_token_s=0.05)

    async with deployed.database() as database:
        organization = await database.fetchval("SELECT id FROM gateway.organizations WHERE name = 'demo'")
    await priced.go(f"/org/{organization}/usage?period=24h&figure=requests&by=nothing")
    summary = page.locator("summary").and_(page.get_by_label("As a table: Requests by hour"))
    await summary.wait_for(timeout=SECONDS * 1000)  # until what was recorded is added up
    await summary.focus()
    await page.keyboard.press("Enter")
    table = page.get_by_role("table", name="Requests by hour, as a table")
    await expect(table.get_by_role("columnheader")).to_have_text(["From (UTC)", "all"])
    await expect(table.get_by_role("row")).to_have_count(1 + 24)
    assert sum(int(text) for text in await table.get_by_role("cell").all_inner_texts()) > 0
    await priced.expect_no_faults("a chart as a table")


async def test_a_key_goes_with_the_session_of_who_put_it_in(
    browser: Browser, priced: Console, deployed: Deployment
) -> None:
    """The next one signs in on the same page, which is not loaded again."""
    async with seen_by(browser, deployed.url) as window:
        page = window.page
        await page.goto(re.sub(r"/console/.*", "/console/sign-in", priced.page.url))
        await signed_in(window)
        await page.evaluate("globalThis.same = true")
        await page.get_by_role("link", name="Chat", exact=True).click()
        await page.get_by_label("Or use a key you have").fill("sk-slip-of-the-one-before")
        await page.get_by_role("button", name="Use it").click()
        await page.get_by_role("button", name="Use another key").wait_for()
        await page.get_by_role("button", name="Account, appearance, sign out").click()
        await page.get_by_role("menuitem", name="Sign out").click()
        await signed_in(window)
        await page.get_by_role("link", name="Chat", exact=True).click()
        await window.settled()
        assert await page.evaluate("globalThis.same"), "the page was loaded again"
        await expect(page.get_by_label("Or use a key you have")).to_be_visible()


async def signed_in(window: Console) -> None:
    page = window.page
    await page.get_by_label("Email").fill(EMAIL)
    await page.get_by_label("Password", exact=True).fill(PASSWORD)
    await page.get_by_role("button", name="Sign in", exact=True).click()
    await page.wait_for_url(ANY_HOME)
    await window.settled()
