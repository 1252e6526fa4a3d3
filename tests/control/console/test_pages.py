"""The console's files over a real server: what may run in them, who may frame them, how long they are kept."""

from __future__ import annotations

import gzip
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest
from litestar import Litestar

from contracts.errors import NotFound
from control.console.oidc.destination import HOME, own
from control.console.pages import Pages, pages_route
from tests.gateway.served import served

PAGE = Path(__file__).parent / "page"


@pytest.fixture
async def url() -> AsyncIterator[str]:
    app = Litestar([pages_route(Pages.read(PAGE))], openapi_config=None, logging_config=None)
    async with served(app) as running:
        yield f"http://127.0.0.1:{running.port}"


async def test_nothing_but_our_own_files_runs_and_nobody_frames_the_page(url: str) -> None:
    async with aiohttp.ClientSession() as session:
        for path in ("/console", "/console/", "/console/usage", "/console/assets/main-4f2a91.js"):
            async with session.get(url + path) as response:
                assert response.status == 200
                policy = {
                    name: values
                    for name, *values in (
                        each.split() for each in response.headers["content-security-policy"].split(";")
                    )
                }
                assert policy["default-src"] == policy["frame-ancestors"] == policy["base-uri"] == ["'none'"]
                assert policy["script-src"] == policy["style-src"] == policy["connect-src"] == ["'self'"]
                assert "unsafe" not in str(policy)
                assert response.headers["x-frame-options"] == "DENY"
                assert response.headers["x-content-type-options"] == "nosniff"
                assert response.headers["referrer-policy"] == "no-referrer"
                assert response.headers["cross-origin-opener-policy"] == "same-origin"
                assert "camera=()" in response.headers["permissions-policy"]


async def test_addresses_of_the_page_are_the_page_and_files_that_are_not_are_not_found(url: str) -> None:
    index = (PAGE / "index.html").read_text()
    async with aiohttp.ClientSession() as session:
        for path in ("", "/", "/organizations/3f2a/keys", "/index.html"):
            async with session.get(f"{url}/console{path}") as response:
                assert await response.text() == index
                assert response.headers["content-type"] == "text/html; charset=utf-8"
                assert response.headers["cache-control"] == "no-store"
        for path in (
            "/assets/gone-1234.js",
            "/favicon.ico",
            "/api/nothing",
            "/%2e%2e/conftest.py",
            "/assets/../../x.py",
        ):
            async with session.get(f"{url}/console{path}") as response:
                assert response.status != 200, path


async def test_hashed_files_are_kept_for_ever_and_sent_compressed(url: str) -> None:
    path, plain = f"{url}/console/assets/main-4f2a91.js", (PAGE / "assets" / "main-4f2a91.js").read_bytes()
    async with aiohttp.ClientSession(auto_decompress=False) as session:
        async with session.get(path, headers={"accept-encoding": "br, gzip;q=0.5"}) as response:
            assert response.headers["content-type"].startswith("text/javascript")
            assert "immutable" in response.headers["cache-control"]
            assert response.headers["vary"] == "accept-encoding"
            sent, etag = await response.read(), response.headers["etag"]
            assert len(sent) < len(plain)
            assert gzip.decompress(sent) == plain
        for refused in ("identity", "gzip;q=0", ""):
            async with session.get(path, headers={"accept-encoding": refused}) as response:
                assert await response.read() == plain
        async with session.get(path, headers={"if-none-match": etag}) as response:
            assert (response.status, await response.read()) == (304, b"")


def test_a_console_that_is_not_built_says_so(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="npm run build"):
        Pages.read(tmp_path).find("index.html")


@pytest.mark.parametrize(
    "asked",
    [
        "/console",
        "/console/",
        "/console/usage?from=2026-11-01&by=model",
        "/console/#/keys?state=active",
        "/console?x=//y",
    ],
)
def test_pages_of_ours_are_where_one_may_go(asked: str) -> None:
    assert own(asked) == asked


@pytest.mark.parametrize(
    "asked",
    [
        None, "", "/", "/admin/v1/me", "https://evil.example", "//evil.example/console/",
        "/\\evil.example", "/console\\x", "/console//evil.example",
        "/consolex", "/console/../x", "/console/%2e%2e/x", "/console/a\nb", "/console/é",
        "/console/\tx", "javascript:alert(1)", "/console/api/oidc/start", "/console/" + "a" * 2_000,
    ],
)  # fmt: skip
def test_anywhere_else_is_the_first_page(asked: str | None) -> None:
    assert own(asked) == HOME
