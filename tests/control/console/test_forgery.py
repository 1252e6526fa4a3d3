"""What a page of another site can have a browser do that is signed in: nothing."""

from __future__ import annotations

from uuid import uuid4

import pytest

from tests.control.api.lone_gateway import LoneGateway
from tests.control.console.browser import PASSWORD, Browser, Town


@pytest.fixture(scope="module")
async def projects(town: Town) -> str:
    return f"/admin/v1/organizations/{town.organizations['ours']}/projects"


def changes(projects: str) -> list[tuple[str, str, object]]:
    """Requests that change something: of the admin API, and of the console's own."""
    return [
        ("POST", projects, {"name": uuid4().hex}),
        ("POST", "/console/api/password", {"current_password": PASSWORD, "new_password": "some other words in a row"}),
        ("POST", "/console/api/totp", {"password": PASSWORD}),
        ("DELETE", "/console/api/sessions", None),
        ("DELETE", f"/console/api/sessions/{uuid4()}", None),
        ("DELETE", "/console/api/session", None),
    ]


async def test_a_request_without_the_token_or_with_anothers_changes_nothing(town: Town, projects: str) -> None:
    async with town.signed_in() as browser, town.signed_in() as other:
        for method, path, body in changes(projects):
            for csrf in (None, "x", other.csrf, browser.csrf[:-1], f"{browser.csrf} ", "é"):
                answer = await browser.ask(method, path, body, x_csrf_token=csrf)
                assert (answer.status, answer.code) == (403, "csrf_token_refused"), (method, path, csrf)
        assert (await browser.ask("POST", projects, {"name": uuid4().hex})).status == 201


async def test_a_request_of_another_sites_page_changes_nothing_whatever_it_holds(town: Town, projects: str) -> None:
    foreign: tuple[dict[str, str | None], ...] = (
        {"origin": "https://evil.example"},
        {"origin": "null"},
        {"origin": town.url.replace("http://", "https://")},
        {"origin": None, "sec_fetch_site": "cross-site"},
        {"origin": None, "sec_fetch_site": "same-site"},
        {"sec_fetch_site": "cross-site"},
    )
    async with town.signed_in() as browser:
        for method, path, body in changes(projects):
            for headers in foreign:
                answer = await browser.ask(method, path, body, **headers)
                assert (answer.status, answer.code) == (403, "foreign_page"), (method, path, headers)
        assert (await browser.ask("GET", "/console/api/session")).signed_in is not None


async def test_nobody_is_signed_in_by_another_sites_page(town: Town) -> None:
    """Signing somebody in as oneself shows what they then do."""
    email = await town.account()
    async with town.browser() as browser:
        body = {"email": email, "password": PASSWORD}
        for headers in ({"origin": "https://evil.example"}, {"sec_fetch_site": "cross-site"}):
            assert (await browser.ask("POST", "/console/api/session", body, **headers)).code == "foreign_page"
        form = await browser.ask("POST", "/console/api/session", body, content_type="text/plain")
        assert (form.status, browser.cookies) == (400, {})
        assert (await browser.ask("POST", "/console/api/session", body)).status == 200


async def test_a_key_ignores_the_cookie_and_needs_no_token(town: Town, projects: str) -> None:
    member_id, _ = await town.member()
    secret = await town.key_of(member_id)
    async with town.signed_in() as browser:
        mine = (await browser.ask("GET", "/admin/v1/me")).body["id"]
        headers = {"authorization": f"Bearer {secret}", "x_csrf_token": None, "origin": "https://anywhere.example"}
        me = await browser.ask("GET", "/admin/v1/me", **headers)
        assert me.body["id"] == str(member_id) != mine
        assert (await browser.ask("POST", projects, {"name": uuid4().hex}, **headers)).status == 201
        other = secret[:-1] + ("y" if secret.endswith("x") else "x")
        wrong = await browser.ask("GET", "/admin/v1/me", authorization=f"Bearer {other}")
        assert wrong.status == 401  # and the cookie does not help


async def test_a_program_without_a_browsers_headers_needs_the_token_too(town: Town, projects: str) -> None:
    async with town.signed_in() as browser:
        bare = {"origin": None, "sec_fetch_site": None}
        body = {"name": uuid4().hex}
        assert (await browser.ask("POST", projects, body, **bare, x_csrf_token=None)).code == "csrf_token_refused"
        assert (await browser.ask("POST", projects, body, **bare)).status == 201


async def test_an_inference_endpoint_takes_no_session(town: Town) -> None:
    async with town.signed_in() as browser:
        assert (await browser.ask("GET", "/v1/models")).status == 401


async def test_what_only_a_proxy_may_say_is_not_believed_of_others(town: Town, other_gateway: LoneGateway) -> None:
    """This gateway trusts no proxy: the headers are anybody's."""
    email = await town.account()
    async with town.browser() as browser:
        there = Browser(browser.session, other_gateway.url)
        body = {"email": email, "password": PASSWORD}
        secure = {"x_forwarded_proto": "https"}
        lied = await there.ask(
            "POST", "/console/api/session", body, origin=there.url.replace("http:", "https:"), **secure
        )
        assert lied.code == "foreign_page"
        answer = await there.ask("POST", "/console/api/session", body, **secure)
        assert answer.signed_in["session"]["network"] == "127.0.0.1"
        assert list(answer.cookies) == ["slipstream-session"]
