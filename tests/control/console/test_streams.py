"""A page's stream of news ends with the session that opened it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

import aiohttp

from tests.control.console.browser import Browser, Town
from tests.waiting import GUARD_S

EVENTS = "/admin/v1/events?topics=usage,requests"


@contextlib.asynccontextmanager
async def opened(browser: Browser) -> AsyncIterator[aiohttp.ClientResponse]:
    """As EventSource does: the cookie, and where the page is from."""
    headers = {
        "cookie": "; ".join(f"{name}={value}" for name, value in browser.cookies.items()),
        "x-forwarded-for": browser.address,
        "x-forwarded-proto": "http",
        "accept": "text/event-stream",
        "sec-fetch-site": "same-origin",
    }
    async with browser.session.get(browser.url + EVENTS, headers=headers) as response:
        yield response


async def test_signing_out_ends_its_stream_and_no_other(town: Town) -> None:
    async with town.signed_in() as leaving, town.signed_in() as staying:
        async with opened(leaving) as stream, opened(staying) as other:
            assert (stream.status, other.status) == (200, 200)
            assert (await stream.content.readline()).startswith(b"retry: ")
            assert (await leaving.ask("DELETE", "/console/api/session")).status == 200
            async with asyncio.timeout(GUARD_S):
                await stream.content.read()  # to its end
            assert not other.content.at_eof()
        async with opened(leaving) as again:
            assert again.status == 401
