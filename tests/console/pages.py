"""One window of the console: what it complained about, and what axe finds on its pages."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from playwright.async_api import Browser, Expect, Page, StorageState

from tests.deployment import ROOT
from tests.waiting import eventually

AXE = ROOT / "console" / "node_modules" / "axe-core" / "axe.min.js"
GUARD_S = 60
"""Of every wait for a page. A guard, not a measure: pages ask again every five seconds."""
expect = Expect()
expect.set_options(timeout=1_000 * GUARD_S)
Theme = Literal["light", "dark"]
THEMES: tuple[Theme, ...] = ("light", "dark")
GRAVE = ("serious", "critical")
PICTURES = "SLIPSTREAM_TEST_PICTURES"
"""An environment variable: the folder where pictures of the pages are kept; without it there are none."""
MAKE = """
async ([method, path, body]) => {
  const session = await (await fetch("/console/api/session")).json();
  const headers = {"Content-Type": "application/json", "X-CSRF-Token": session.signed_in.csrf_token};
  const answer = await fetch(path, {method, headers, body: JSON.stringify(body)});
  if (!answer.ok) throw new Error(`${path}: ${answer.status} ${await answer.text()}`);
  return await answer.json();
}
"""
OPERATORS_HOME = "**/console/operations"
ANY_HOME = re.compile(r"/console/(operations|org/[^/]+)$")
"""Where signing in leads: who runs the deployment to its page, others to their organization's."""
TAGS = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa"]


@dataclass
class Console:
    """A page, the deployment's address, and what the page wrote to its console as errors."""

    page: Page
    url: str
    complaints: list[str] = field(default_factory=list)
    expected: tuple[str, ...] = ("Failed to load resource",)
    """Of refusals that a test brings about; the browser notes each."""

    async def go(self, path: str) -> None:
        """To an address below /console, until its heading stands and nothing loads any more."""
        await self.page.goto(f"{self.url}/console{path}")
        await self.settled()

    async def settled(self) -> None:
        """Until the page has a heading and no skeleton."""
        await self.page.get_by_role("heading", level=1).wait_for()
        await expect(self.page.locator(".skeleton")).to_have_count(0)

    async def until(self, predicate: str, argument: object) -> None:
        """Until an asynchronous function holds. `wait_for_function` takes any promise for true."""
        await eventually(lambda: self.page.evaluate(predicate, argument), GUARD_S)

    async def heading(self) -> str:
        """The page's."""
        return await self.page.get_by_role("heading", level=1).inner_text()

    async def expect_no_faults(self, name: str) -> None:
        """axe finds nothing serious, in light and in dark; nothing was refused by the content security policy. A
        picture of each is kept where PICTURES says, of the whole page."""
        for theme in THEMES:
            await self._paint(theme)
            found = await self.grave()
            assert not found, f"{name}, {theme}: {found}"
            if (folder := os.environ.get(PICTURES)) is not None:
                await self.page.evaluate("scrollTo(0, 0)")
                path = Path(folder) / f"{file_name(name)}-{theme}.png"
                await self.page.screenshot(path=path, full_page=True)
        await self._paint("light")
        bad = self.bad()
        assert not bad, f"{name}: {bad}"

    def bad(self) -> list[str]:
        """What the page complained about and no test brought about."""
        return [each for each in self.complaints if not each.startswith(self.expected)]

    async def grave(self) -> list[str]:
        """What axe finds serious or worse on the page as it is; nothing where it is not installed and need not be."""
        if AXE.exists():
            return await self._axe()
        assert os.environ.get("TEST_CHROMIUM") != "required", "required: make console installs axe"
        return []

    async def _paint(self, theme: Theme) -> None:
        await self.page.emulate_media(color_scheme=theme)
        await self.page.wait_for_function("theme => document.documentElement.dataset.theme === theme", arg=theme)

    async def _axe(self) -> list[str]:
        # run by the debugger's own evaluation: the policy would refuse a script element
        await self.page.evaluate(AXE.read_text())
        found: dict[str, Any] = await self.page.evaluate(
            "tags => axe.run(document, {runOnly: {type: 'tag', values: tags}})", TAGS
        )
        return [
            f"{each['id']}: {node['html'][:160]} ({node.get('failureSummary', '')[:200]})"
            for each in found["violations"]
            if each["impact"] in GRAVE
            for node in each["nodes"]
        ]


async def made(console: Console, path: str, body: object = None, method: str = "POST") -> Any:
    """What the window's own session has made by the admin API; path: below /admin/v1."""
    return await console.page.evaluate(MAKE, [method, f"/admin/v1{path}", body or {}])


def file_name(name: str) -> str:
    """A page's name or address as a file's: `one` for each id in it, and nothing of what it searches."""
    named = re.sub(r"\?.*", "", re.sub(r"[0-9a-f]{8}-[0-9a-f-]{27}", "one", name))
    return re.sub(r"[^a-z0-9]+", "-", named.lower()).strip("-")


@contextlib.asynccontextmanager
async def seen_by(
    browser: Browser, url: str, *, width: int = 1360, height: int = 860, kept: StorageState | None = None
) -> AsyncIterator[Console]:
    """A window of its own: cookies and storage are its own too. kept: what they are at first."""
    context = await browser.new_context(
        viewport={"width": width, "height": height}, reduced_motion="reduce", storage_state=kept
    )
    context.set_default_timeout(1_000 * GUARD_S)
    page = await context.new_page()
    console = Console(page, url)
    page.on("console", lambda each: console.complaints.append(each.text) if each.type == "error" else None)
    page.on("pageerror", lambda each: console.complaints.append(str(each)))
    yield console
    await context.close()
