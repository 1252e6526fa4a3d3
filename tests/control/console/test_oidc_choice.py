"""A member of several organizations who signs in by the provider chooses one, and every member may leave one."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from uuid import UUID, uuid4

import pytest

from contracts.dated_request_id import mint
from contracts.errors import SessionEnded
from control.api.api import AdminApi
from control.api.config import AdminConfig
from control.console.console import Console, ConsoleCall
from control.console.oidc import flow
from control.console.oidc.entrance import NoEntrance
from control.console.oidc.flow import CHOOSE, COOKIE, PROVED, Beginning, Returning, choose_organization, get_choices
from control.console.oidc.identity import Identity
from control.console.schema import ConsoleSession, OrganizationChoice
from control.sessions.browsers import Browsers
from control.sessions.config import ConsoleConfig, OidcConfig
from control.sessions.site import Visit
from gateway.serving.model_catalog import ModelCatalog
from storage.roles import Role
from tests.control.api.lone_gateway import LoneGateway
from tests.control.console.browser import PASSWORD, Town

ISSUER = "https://id.example"


class Known:
    """A provider that has already proved the identity."""

    def __init__(self) -> None:
        self.identity_of: Identity | None = None
        self.state = ""

    async def address(self, _: str, state: str, *__: str) -> str:
        self.state = state
        return f"{ISSUER}/authorize"

    async def identity(self, *_: str) -> Identity:
        assert self.identity_of is not None
        return self.identity_of

    async def stop(self) -> None:
        pass


class Person:
    def __init__(self, console: Console, provider: Known, email: str | None, subject: str = "") -> None:
        self._console = console
        self._provider = provider
        self._cookies: dict[str, str] = {}
        self.identity = Identity(issuer=ISSUER, subject=subject or uuid4().hex, email=email, name=None, groups=())

    async def does(self, service: Any, *asked: Any) -> Any:
        cookies = "; ".join(f"{name}={value}" for name, value in self._cookies.items())
        visit = Visit(method="GET", headers={"cookie": cookies}, origin="http://here", network="192.0.2.1")
        call = ConsoleCall(self._console, visit, mint())
        self._provider.identity_of = self.identity
        answer = await service(call, *asked)
        self._cookies |= {cookie.key: cookie.value or "" for cookie in call.cookies}
        return answer

    async def returns(self) -> str:
        """The address after the provider's sign-in."""
        await self.does(flow.start_oidc, Beginning(next="/console/usage"))
        return await self.comes_back()

    async def comes_back(self) -> str:
        answer: str = await self.does(flow.finish_oidc, Returning(state=self._provider.state, code="c"))
        return answer

    async def offered(self) -> set[UUID]:
        return {each.id for each in (await self.does(get_choices)).data}

    async def chooses(self, organization_id: UUID) -> str:
        session: ConsoleSession = await self.does(
            choose_organization, OrganizationChoice(organization_id=organization_id)
        )
        assert session.signed_in is not None
        assert self._cookies[PROVED] == ""
        return session.signed_in.organization.name

    def take(self, name: str, other: str) -> None:
        self._cookies[name] = self._cookies[other]


class Place:
    """A gateway whose settings name a provider and no groups."""

    def __init__(self, console: Console, provider: Known) -> None:
        self.console = console
        self._provider = provider

    def person(self, email: str | None, subject: str = "") -> Person:
        return Person(self.console, self._provider, email, subject)


@asynccontextmanager
async def place_over(url: str, pepper: bytes) -> AsyncIterator[Place]:
    config = ConsoleConfig(oidc=OidcConfig(issuer=ISSUER, client_id="slipstream"))
    catalog, provider = ModelCatalog(), Known()
    admin = AdminApi(url, pepper, AdminConfig(), catalog, console=config)
    console = Console(admin, Browsers(config, pepper, tls=False), config, pepper, provider)  # type: ignore[arg-type]
    await admin.start()
    try:
        yield Place(console, provider)
    finally:
        await console.stop()
        await admin.stop()
        catalog.close()


@pytest.fixture
async def place(people: Town, console_gateway: LoneGateway, console_postgres_url: str) -> AsyncIterator[Place]:
    async with place_over(console_postgres_url, people.pepper) as made:
        yield made


async def test_a_member_of_one_organization_is_not_asked(place: Place, town: Town) -> None:
    _, email = await town.member(Role.VIEWER)
    assert await place.person(email.upper()).returns() == "/console/usage"


async def test_adding_an_address_first_captures_no_sign_in(place: Place, town: Town) -> None:
    """Fault: the oldest member with the address it was, bound to the person from then on."""
    _, email = await town.member(Role.VIEWER, "theirs")
    await town.member(Role.OWNER, "ours", email)
    person = place.person(email)
    assert await person.returns() == CHOOSE + "%2Fconsole%2Fusage"
    assert await person.offered() == {town.organizations["ours"], town.organizations["theirs"]}
    assert await person.chooses(town.organizations["ours"]) == "ours"
    bound = await town.database.fetch(
        "SELECT organization_id FROM gateway.console_accounts AS account JOIN gateway.principals AS member"
        " ON member.id = principal_id WHERE oidc_subject = $1",
        person.identity.subject,
    )
    assert [row["organization_id"] for row in bound] == [town.organizations["ours"]]


async def test_a_member_chooses_again_after_another_organization_adds_them(place: Place, town: Town) -> None:
    """Fault: the subject was bound to the first one for good."""
    _, email = await town.member(Role.VIEWER, "theirs")
    person = place.person(email)
    assert await person.returns() == "/console/usage"
    await town.member(Role.OWNER, "ours", email)
    assert (await person.returns()).startswith(CHOOSE)
    assert await person.chooses(town.organizations["ours"]) == "ours"


async def test_nobody_chooses_an_organization_that_is_not_theirs(place: Place, town: Town) -> None:
    _, email = await town.member(Role.VIEWER, "theirs")
    first = place.person(email)
    assert await first.returns() == "/console/usage"
    await town.member(Role.VIEWER, "ours", email)
    await town.member(Role.VIEWER, "operator", email)
    namesake = place.person(email)
    assert (await namesake.returns()).startswith(CHOOSE)
    assert await namesake.offered() == {town.organizations["ours"], town.organizations["operator"]}
    for organization in (town.organizations["theirs"], uuid4()):
        with pytest.raises(NoEntrance):
            await namesake.chooses(organization)


async def test_an_invitation_gives_no_password_to_who_came_by_the_provider(place: Place, town: Town) -> None:
    """Fault: the inviter, who knows the link, could open the member's account with it for three days."""
    member_id, email = await town.member(Role.OWNER)
    invitation = await town.link("invitation", member_id)
    assert await place.person(email).returns() == "/console/usage"
    async with town.browser() as inviter:
        body = {"token": invitation, "password": PASSWORD}
        assert (await inviter.ask("POST", "/console/api/welcome/preview", {"token": invitation})).code == "invalid_link"
        assert (await inviter.ask("POST", "/console/api/welcome", body)).code == "invalid_link"
        assert (await inviter.sign_in(email)).code == "sign_in_refused"
        body["token"] = await town.link("reset", member_id)
        assert (await inviter.ask("POST", "/console/api/welcome", body)).signed_in["account"]["email"] == email


async def test_an_account_that_a_provider_opens_from_now_on_is_in_the_audit_log(place: Place, town: Town) -> None:
    """Fault: an account with a password got another way in, and the log had only the session."""
    person = place.person(await town.account())
    for _ in range(2):
        assert await person.returns() == "/console/usage"
    told = await town.database.fetch(
        "SELECT action, actor_kind, after->>'changed' FROM gateway.audit_log JOIN gateway.console_accounts AS account"
        " ON account.id::text = subject_id WHERE oidc_subject = $1",
        person.identity.subject,
    )
    assert [tuple(row) for row in told] == [("console_account.update", "system", "provider")]


async def test_an_organization_that_is_disabled_is_no_choice(place: Place, town: Town) -> None:
    _, email = await town.member(Role.VIEWER, "ours")
    disabled, _ = await town.member(Role.VIEWER, "theirs", email)
    await town.database.execute("UPDATE gateway.principals SET disabled_at = now() WHERE id = $1", disabled)
    assert await place.person(email).returns() == "/console/usage"


async def test_a_choice_needs_a_fresh_proof_of_the_provider(
    place: Place, town: Town, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, email = await town.member(Role.VIEWER, "theirs")
    await town.member(Role.VIEWER, "ours", email)
    person = place.person(email)
    with pytest.raises(SessionEnded):
        await person.offered()
    await person.does(flow.start_oidc, Beginning())
    person.take(PROVED, COOKIE)
    with pytest.raises(SessionEnded):
        await person.offered()
    monkeypatch.setattr(flow, "WAIT_S", -1)
    assert (await person.comes_back()).startswith(CHOOSE)
    with pytest.raises(SessionEnded):
        await person.chooses(town.organizations["ours"])


async def test_a_member_leaves_by_itself_and_the_last_owner_stays(town: Town) -> None:
    """Fault: only an administrator could remove a member from an organization."""
    async with town.signed_in(Role.VIEWER) as browser:
        member_id = (await browser.ask("GET", "/admin/v1/me")).body["id"]
        left = await browser.ask("DELETE", "/console/api/membership")
        assert left.signed_in is None
        assert "slipstream-session" not in browser.cookies
    assert not await town.database.fetchval("SELECT count(*) FROM gateway.principals WHERE id = $1", UUID(member_id))
    await town.database.execute(
        "UPDATE gateway.principals SET disabled_at = now() WHERE organization_id = $1 AND role = 'owner'",
        town.organizations["theirs"],
    )
    async with town.signed_in(Role.OWNER, "theirs") as owner:
        refused = await owner.ask("DELETE", "/console/api/membership")
        assert (refused.status, refused.code) == (409, "conflict")
        assert (await owner.ask("GET", "/admin/v1/me")).status == 200
