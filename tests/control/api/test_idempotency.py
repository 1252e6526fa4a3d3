"""Idempotency-Key: one effect however often it is asked, over HTTP and against an API whose handlers can fail."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from uuid import uuid4

import msgspec
import pytest

from contracts.errors import IdempotencyInFlight, IdempotencyMismatch, InvalidField, ServiceError
from control.api.api import AdminAnswer, AdminApi, AdminRequest
from control.api.call import AdminCall
from control.api.config import AdminConfig
from control.api.operation import Operation, post
from control.api.schemas import Body
from gateway.serving.model_catalog import ModelCatalog
from storage.roles import Permission, Role
from tests.control.api.people import Client, People
from tests.waiting import GUARD_S, eventually


async def project_path(people: People) -> str:
    owner = await people.owner()
    made = await owner.make(f"/organizations/{people.organizations['ours']}/projects", {"name": uuid4().hex})
    return f"/projects/{made['id']}/keys"


async def test_the_first_answer_is_given_again_secret_included(people: People) -> None:
    owner, path, key = await people.owner(), await project_path(people), uuid4().hex
    first = await owner.ask("POST", path, {"name": "k"}, Idempotency_Key=key)
    again = await owner.ask("POST", path, {"name": "k"}, Idempotency_Key=key)
    assert (first.status, again.status) == (201, 201)
    assert again.body == first.body
    assert again.body["secret"].startswith("sk-slip-")
    assert "idempotent-replayed" not in first.headers
    assert again.headers["idempotent-replayed"] == "true"
    assert len((await owner.get(path))["data"]) == 1
    kept = await people.database.fetchval("SELECT answer FROM gateway.idempotency_keys WHERE key = $1", key)
    assert first.body["secret"].encode() not in kept  # sealed


async def test_another_request_under_the_same_key_is_refused(people: People) -> None:
    owner, path, key = await people.owner(), await project_path(people), uuid4().hex
    await owner.make(path, {"name": "k"}, Idempotency_Key=key)
    for other_path, name in ((path, "k2"), (await project_path(people), "k")):
        answer = await owner.ask("POST", other_path, {"name": name}, Idempotency_Key=key)
        assert (answer.status, answer.body["error"]["code"]) == (409, "idempotency_key_reused")
        assert answer.headers["x-should-retry"] == "false"


async def test_many_at_once_have_one_effect(people: People) -> None:
    owner, path, key = await people.owner(), await project_path(people), uuid4().hex
    answers = await asyncio.gather(*(owner.ask("POST", path, {"name": "k"}, Idempotency_Key=key) for _ in range(24)))
    made = [answer for answer in answers if answer.status == 201]
    others = {answer.body["error"]["code"] for answer in answers if answer.status != 201}
    assert made
    assert others <= {"idempotency_key_in_flight"}
    assert all("retry-after" in answer.headers for answer in answers if answer.status == 409)
    assert len({answer.body["secret"] for answer in made}) == 1
    assert len((await owner.get(path))["data"]) == 1


async def test_keys_belong_to_whoever_sent_them(people: People) -> None:
    path, key = await project_path(people), uuid4().hex
    clients: list[Client] = [await people.owner(), await people.as_(Role.DEVELOPER)]
    secrets = {(await client.make(path, {"name": "k"}, Idempotency_Key=key))["secret"] for client in clients}
    assert len(secrets) == 2


async def test_a_refusal_by_the_work_is_kept_and_one_before_it_is_not(people: People) -> None:
    owner, organization, key = await people.owner(), people.organizations["ours"], uuid4().hex
    path, name = f"/organizations/{organization}/projects", uuid4().hex
    assert (await owner.ask("POST", path, {"nam": name}, Idempotency_Key=key)).status == 400
    await owner.make(path, {"name": name})
    conflict = await owner.ask("POST", path, {"name": name}, Idempotency_Key=key)  # not a mismatch with the 400
    assert conflict.status == 409
    await people.database.execute("UPDATE gateway.projects SET name = $1 WHERE name = $2", uuid4().hex, name)
    again = await owner.ask("POST", path, {"name": name}, Idempotency_Key=key)
    assert (again.status, again.body) == (409, conflict.body)
    assert again.headers["idempotent-replayed"] == "true"


async def test_a_key_must_be_short_and_printable(people: People) -> None:
    owner, path = await people.owner(), await project_path(people)
    for key in ("x" * 256, "tab\there"):
        answer = await owner.ask("POST", path, {"name": "k"}, Idempotency_Key=key)
        assert (answer.status, answer.body["error"]["param"]) == (400, "Idempotency-Key")


async def test_after_a_day_the_key_is_as_good_as_new(people: People) -> None:
    owner, path, key = await people.owner(), await project_path(people), uuid4().hex
    first = await owner.make(path, {"name": "k"}, Idempotency_Key=key)
    await _age(people, key, "23 hours 59 minutes")
    assert await owner.make(path, {"name": "k"}, Idempotency_Key=key) == first
    await _age(people, key, "24 hours 1 second")
    assert (await owner.make(path, {"name": "other"}, Idempotency_Key=key))["secret"] != first["secret"]


async def _age(people: People, key: str, how_old: str) -> None:
    await people.database.execute(
        f"UPDATE gateway.idempotency_keys SET started_at = now() - interval '{how_old}' WHERE key = $1", key
    )


class Nothing(Body, frozen=True, kw_only=True):
    """An empty body."""


Script = Callable[[], Awaitable[str]]


class Scripted:
    """An API with one operation whose work is what a test says."""

    def __init__(self, api: AdminApi, people: People, secret: str) -> None:
        self.api = api
        self.people = people
        self.secret = secret
        self.script: list[Script] = []

        async def scripted(call: AdminCall, body: Nothing) -> str:
            """Do what comes next."""
            organization = people.organizations["ours"]
            text = await self.script.pop(0)()
            call.audit("scripted.run", text, organization_id=organization, after=text)
            return text

        self.operation: Operation = post(scripted, Permission.PROJECTS_WRITE, "/scripted")

    async def ask(self, key: str) -> AdminAnswer:
        request = AdminRequest(
            request_id="req_x",
            principal=await self.api.admit(self.operation, self.secret),
            url="/scripted?",
            body=b"{}",
            idempotency_key=key,
            arguments={"data": Nothing()},
        )
        return await self.api.run(self.operation, request)

    async def begun(self, key: str) -> asyncio.Task[AdminAnswer]:
        """A request whose run has taken its key."""
        asked = asyncio.create_task(self.ask(key))
        taken = "SELECT true FROM gateway.idempotency_keys WHERE key = $1"
        await eventually(lambda: self.people.database.fetchval(taken, key))
        return asked


@pytest.fixture
async def scripted(people: People, admin_postgres_url: str) -> AsyncIterator[Scripted]:
    catalog = ModelCatalog()
    api = AdminApi(admin_postgres_url, people.pepper, AdminConfig(timeout_s=GUARD_S), catalog)
    await api.start()
    yield Scripted(api, people, (await people.owner()).secret)
    await api.stop()
    catalog.close()


def says(text: str, going: asyncio.Event | None = None) -> Script:
    """going: what it waits for."""

    async def script() -> str:
        if going is not None:
            await going.wait()
        return text

    return script


def fails(error: Exception) -> Script:
    async def script() -> str:
        raise error

    return script


@pytest.mark.parametrize("failure", [ServiceError("away"), RuntimeError("a defect")])
async def test_our_own_failures_are_not_kept(failure: Exception, scripted: Scripted) -> None:
    key = uuid4().hex
    scripted.script = [fails(failure), says("done")]
    with pytest.raises(type(failure)):
        await scripted.ask(key)
    answer = await scripted.ask(key)
    assert (answer.status, msgspec.json.decode(answer.body), answer.replayed) == (201, "done", False)
    assert (await scripted.ask(key)).replayed


async def test_a_run_that_died_frees_its_key_after_a_minute_and_cannot_finish(scripted: Scripted) -> None:
    key, going = uuid4().hex, asyncio.Event()
    scripted.script = [says("too late", going), says("instead")]
    first = await scripted.begun(key)
    with pytest.raises(IdempotencyInFlight):
        await scripted.ask(key)
    await _age(scripted.people, key, "61 seconds")
    assert msgspec.json.decode((await scripted.ask(key)).body) == "instead"
    going.set()
    with pytest.raises(IdempotencyInFlight):
        await first
    assert msgspec.json.decode((await scripted.ask(key)).body) == "instead"
    rows = await scripted.people.database.fetch(
        "SELECT subject_id FROM gateway.audit_log WHERE action = 'scripted.run' AND subject_id IN ('too late', $1)",
        "instead",
    )
    assert [row["subject_id"] for row in rows] == ["instead"]  # what the dead run had done is undone


async def test_a_value_the_database_cannot_take_is_the_callers_error_and_costs_no_connection(
    scripted: Scripted,
) -> None:
    used: list[int] = []

    async def take(call: AdminCall, body: Nothing) -> str:
        """Say which connection it is, then send what its driver or the server refuses."""
        used.append(await call.connection.fetchval("SELECT pg_backend_pid()"))
        statement, value = (("SELECT $1::int2", 2**15), ("SELECT ($1::int4)::int2", 2**15))[len(used) % 2]
        return str(await call.connection.fetchval(statement, value))

    scripted.operation = post(take, Permission.PROJECTS_WRITE, "/take")
    key = uuid4().hex
    for each in (key, uuid4().hex, uuid4().hex):
        with pytest.raises(InvalidField):
            await scripted.ask(each)
    assert len(used) == 3
    assert len(set(used)) == 1
    again = await scripted.ask(key)
    assert (again.status, again.replayed) == (400, True)


async def test_a_change_without_an_audit_row_does_not_happen(people: People, scripted: Scripted) -> None:
    name = uuid4().hex

    async def silent(call: AdminCall, body: Nothing) -> str:
        """Change something and keep quiet."""
        await call.connection.execute(
            "INSERT INTO gateway.projects (organization_id, name) VALUES ($1, $2)", people.organizations["ours"], name
        )
        return name

    scripted.operation = post(silent, Permission.PROJECTS_WRITE, "/silent")
    with pytest.raises(ServiceError, match="without an audit row"):
        await scripted.ask(uuid4().hex)
    assert await people.database.fetchval("SELECT count(*) FROM gateway.projects WHERE name = $1", name) == 0


async def test_mismatch_is_told_even_while_the_first_runs(scripted: Scripted) -> None:
    key, going = uuid4().hex, asyncio.Event()
    scripted.script = [says("done", going)]
    first = await scripted.begun(key)
    await scripted.people.database.execute(
        "UPDATE gateway.idempotency_keys SET fingerprint = sha256('other') WHERE key = $1", key
    )
    with pytest.raises(IdempotencyMismatch):
        await scripted.ask(key)
    going.set()
    await first
