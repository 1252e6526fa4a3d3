"""The fleet changed over HTTP: for the version that was read, told what differs, refused with the next step, and taken
up by the gateway that serves.
"""

from __future__ import annotations

import asyncio
from typing import Any

import asyncpg
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from storage.roles import Role
from tests.audited import all_audited
from tests.control.api.people import Client, People
from tests.waiting import eventually

POOL = {"name": "blue", "driver": "openai", "replicas": [{"id": "blue-0", "url": "http://127.0.0.1:9"}]}
MODEL = {"name": "org/large", "tier": "chat", "pool": "blue", "context_tokens": 2_048}


@pytest.fixture
async def operator(people: People) -> Client:
    """An owner of the operating organization, whose fleet has a pool and a model to spare."""
    client = await people.operator()
    for path, body in (("/pools/blue", POOL), ("/models/org/large", MODEL)):
        answer = await client.ask("PUT", f"{path}?force=true", body)
        assert answer.status == 200, answer
    return client


async def refusal(client: Client, method: str, path: str, body: object = None, **headers: str) -> tuple[int, str, str]:
    """Status, code and message; the fleet stays as it is."""
    before = await client.get("/fleet")
    answer = await client.ask(method, path, body, **headers)
    assert (await client.get("/fleet"))["version"] == before["version"]
    return answer.status, answer.body["error"]["code"], answer.body["error"]["message"]


async def test_an_engine_that_is_slow_to_report_holds_no_connection_to_the_database(
    operator: Client, admin_postgres_url: str
) -> None:
    asked, answer = asyncio.Event(), asyncio.Event()

    async def models(_: web.Request) -> web.Response:
        asked.set()
        await answer.wait()
        return web.json_response({"data": []})

    app = web.Application()
    app.router.add_get("/v1/models", models)
    async with TestServer(app) as engine:
        reported = asyncio.create_task(operator.ask("GET", f"/engine-models?url={engine.make_url('')}"))
        await asked.wait()
        database = await asyncpg.connect(admin_postgres_url)
        in_use = await database.fetchval(
            "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() "
            "AND application_name = 'slipstream-admin' AND state LIKE 'idle in transaction%'"
        )
        await database.close()
        answer.set()
        assert ((await reported).body, in_use) == ({"data": []}, 0)
    refused = await operator.ask("GET", "/engine-models")
    assert (refused.status, refused.body["error"]["param"]) == (400, "url")


async def test_a_model_with_a_slash_in_its_name_is_put_read_and_removed(operator: Client) -> None:
    answer = await operator.ask("PUT", "/models/org%2Flarge", {**MODEL, "default_max_tokens": 64})
    assert answer.body["differences"] == ["model org/large: default_max_tokens 512 -> 64"]
    read = await operator.ask("GET", "/models/org/large")
    assert read.body == {**MODEL, "default_max_tokens": 64}
    assert read.headers["etag"] == f'"{answer.body["version"]}"' == answer.headers["etag"]
    again = await operator.ask("PUT", "/models/org/large", read.body, If_Match=read.headers["etag"])
    assert (again.body["version"], again.body["differences"]) == (answer.body["version"], [])
    gone = await operator.ask("DELETE", "/models/org/large")
    assert gone.body["differences"] == ["model org/large: removed"]
    assert (await operator.ask("GET", "/models/org/large")).status == 404


async def test_engines_are_probed_before_an_edit_is_made(operator: Client, unused_tcp_port: int) -> None:
    async def models(_: web.Request) -> web.Response:
        return web.json_response({"data": [{"id": "large", "max_model_len": 2_048}]})

    async def locked(_: web.Request) -> web.Response:
        return web.Response(status=401)

    async def llama_models(_: web.Request) -> web.Response:
        return web.json_response({"data": [{"id": "small.gguf", "meta": {"n_ctx_train": 40_960}}]})

    async def llama_props(_: web.Request) -> web.Response:
        return web.json_response({"default_generation_settings": {"n_ctx": 8_192}})

    async def reported(path: str, driver: str = "openai") -> Any:
        answer = await operator.ask("GET", f"/engine-models?driver={driver}&url={path}")
        return answer.body["data"] if answer.status == 200 else answer.body["error"]

    async def put(path: str, **replica: object) -> tuple[int, str]:
        body = {**POOL, "name": "probed", "replicas": [{"id": "probed-0", "url": path, **replica}]}
        answer = await operator.ask("PUT", "/pools/probed?probe=true", body)
        return answer.status, "" if answer.status == 200 else answer.body["error"]["message"]

    app = web.Application()
    app.router.add_get("/v1/models", models)
    app.router.add_get("/locked/v1/models", locked)
    app.router.add_get("/llama/v1/models", llama_models)
    app.router.add_get("/llama/props", llama_props)
    async with TestServer(app) as engine:
        url = str(engine.make_url("/")).rstrip("/")
        status, said = await put(f"{url}/broken")
        assert status == 400
        assert f"{url}/broken: GET /v1/models returned status 404, so it is not ready. To make the edit" in said
        status, said = await put(f"http://127.0.0.1:{unused_tcp_port}")
        assert status == 400
        assert "pools.probed.replicas.probed-0" in said
        assert await reported(f"{url}/v1") == [{"name": "large", "context_tokens": 2_048}]
        assert await reported(f"{url}/llama") == [{"name": "small.gguf", "context_tokens": 8_192}]
        locked_said = await reported(f"{url}/locked")
        assert (locked_said["param"], "requires a key" in locked_said["message"]) == ("url", True)
        assert "Enter the model's name and context yourself" in locked_said["message"]
        assert (await reported(url, "opanai"))["param"] == "driver"
        assert (await put(f"{url}/locked"))[0] == (await put(f"{url}/v1"))[0] == 200
        model = {**MODEL, "name": "probed", "pool": "probed"}
        status, code, said = await refusal(operator, "PUT", "/models/probed?probe=true", model)
        assert (status, code) == (400, "invalid_value")
        assert "serves 'large', not 'probed'; set models.probed.engine_model to the name it serves" in said
        named = await operator.ask("PUT", "/models/probed?probe=true", {**model, "engine_model": "large"})
        assert named.status == 200
        new = {**MODEL, "name": "new", "pool": "new"}
        serving = {**POOL, "name": "new", "replicas": [{"id": "new-0", "url": f"{url}/v1"}]}
        version = (await operator.get("/fleet"))["version"]
        status, code, said = await refusal(operator, "POST", "/models?probe=true", {"model": new, "pool": serving})
        assert (status, code) == (400, "invalid_value")
        assert "serves 'large', not 'new'" in said
        assert (await operator.get("/fleet"))["version"] == version, "neither is written"
        new["engine_model"] = "large"
        added = await operator.ask("POST", "/models?probe=true", {"model": new, "pool": serving})
        assert (added.status, added.body["version"]) == (201, version + 1)
        assert [line.split(":")[0] for line in added.body["differences"]][:2] == ["model new", "pool new"]
        for name, what in (("new", "model"), ("other", "pool")):
            again = {"model": {**new, "name": name}, "pool": serving}
            status, code, said = await refusal(operator, "POST", "/models", again)
            assert (status, said.split(";")[0]) == (409, f"There is a {what} 'new' already")
    for name in ("probed", "new"):
        await operator.ask("DELETE", f"/models/{name}")
        await operator.ask("DELETE", f"/pools/{name}")


async def test_of_two_who_read_the_same_version_one_is_told_who_was_faster(operator: Client, people: People) -> None:
    read = (await operator.ask("GET", "/pools/blue")).headers["etag"]
    other = await people.as_(Role.ADMIN, "operator")
    first = await other.ask("PATCH", "/pools/blue/replicas/blue-0", {"weight": 2}, If_Match=read)
    assert first.body["differences"] == ["replica blue-0 of blue: weight 1.0 -> 2.0"]
    status, code, said = await refusal(operator, "PATCH", "/pools/blue/replicas/blue-0", {"weight": 3}, If_Match=read)
    assert (status, code) == (412, "version_mismatch")
    assert f"at version {first.body['version']}, not" in said
    assert "@example.com changed it (replica.weight). Read the current" in said
    assert (await refusal(operator, "DELETE", "/models/org/large", If_Match="seven"))[:2] == (400, "invalid_value")


async def test_a_dry_run_says_what_would_differ_and_does_nothing(operator: Client, people: People) -> None:
    version = (await operator.get("/fleet"))["version"]
    async with all_audited(people.database) as rows:
        answer = await operator.ask("PUT", "/aliases/quick?dry_run=true", {"model": "org/large"})
    assert answer.body == {
        "version": version + 1,
        "previous_version": version,
        "dry_run": True,
        "differences": ['model org/large: aliases [] -> ["quick"]'],
    }
    assert (rows, (await operator.get("/fleet"))["version"]) == ([], version)


REFUSED: list[tuple[str, str, Any, tuple[int, str], str]] = [
    ("DELETE", "/pools/blue", None, (409, "conflict"), "serves org/large; point them to another pool"),
    ("PATCH", "/pools/blue/replicas/blue-0", {"weight": 0}, (409, "conflict"), "or force it"),
    ("PATCH", "/pools/blue/replicas/blue-9", {"weight": 1}, (404, "not_found"), "Did you mean 'blue-0'?"),
    ("PUT", "/models/other", MODEL, (400, "invalid_value"), "it must be 'other', as in the path"),
    ("PUT", "/models/all", {**MODEL, "name": "all"}, (400, "invalid_value"), "no model or alias may have this name"),
    ("PUT", "/models/org/large", {**MODEL, "colour": 1}, (400, "unknown_parameter"), "colour"),
    ("PUT", "/models/org/large", {**MODEL, "tokenizer": "/nowhere"}, (400, "invalid_value"), "tokenizer"),
    ("PUT", "/pools/blue", {**POOL, "driver": "triton"}, (400, "invalid_value"), "triton"),
    ("PUT", "/pools/blue", {**POOL, "api_key_env": "NO_API_KEY"}, (400, "invalid_value"), "NO_API_KEY is not set"),
    ("PUT", "/pools/blue", {**POOL, "api_key_env": "HOME"}, (400, "invalid_value"), "must end with _API_KEY"),
    (
        "PUT",
        "/pools/blue",
        {**POOL, "api_key_file": "/x/engine-keys/../pepper"},
        (400, "invalid_value"),
        "must be in a folder called engine-keys",
    ),
    ("PUT", "/pools/blue", {**POOL, "api_key_file": "/x/engine-keys/a"}, (400, "invalid_value"), "/x/engine-keys/a:"),
    ("PUT", "/pools/blue/replicas/b1", {"id": "b1", "url": "host:1"}, (400, "invalid_value"), "did you mean http"),
    (
        "PUT",
        "/pools/blue/replicas/b1",
        {"id": "b1", "url": "http://h:1/health"},
        (400, "invalid_value"),
        "write http://h:1",
    ),
    ("POST", "/fleet/rollback", {"version": 10_000}, (404, "not_found"), "no version '10000'"),
]
"""Requests, and with which status, code and words they are refused."""


async def test_what_would_break_is_refused_with_the_next_step(operator: Client) -> None:
    for method, path, body, expected, said in REFUSED:
        status, code, message = await refusal(operator, method, path, body)
        assert (status, code) == expected, message
        assert said in message


async def test_versions_say_who_made_them_and_one_comes_back(operator: Client) -> None:
    before = await operator.get("/pools/blue")
    version = (await operator.get("/fleet"))["version"]
    await operator.ask("PUT", "/pools/blue/replicas/blue-1", {"id": "blue-1", "url": "http://127.0.0.1:10"})
    newest, earlier = (await operator.get("/fleet/versions?limit=2"))["data"]
    assert (newest["version"], newest["action"]) == (version + 1, "replica.put")
    assert newest["actor"].endswith("@example.com")
    assert earlier["version"] == version
    shown = await operator.get(f"/fleet/versions/{version + 1}")
    assert shown["differences"] == ["replica blue-1 of blue: added"]
    assert (await operator.get(f"/fleet/versions/{version}?since={version + 1}"))["differences"] == [
        "replica blue-1 of blue: removed"
    ]
    assert "model wide: added" in (await operator.get("/fleet/versions/1"))["differences"]
    back = await operator.ask("POST", "/fleet/rollback", {"version": version}, Idempotency_Key=f"back {version}")
    assert (back.status, back.body["version"]) == (200, version + 2)
    assert await operator.get("/pools/blue") == before
    replayed = await operator.ask("POST", "/fleet/rollback", {"version": version}, Idempotency_Key=f"back {version}")
    assert (replayed.body, replayed.headers["idempotent-replayed"]) == (back.body, "true")


async def test_the_gateway_tells_what_it_serves_and_what_it_refuses(operator: Client) -> None:
    """Forced past the check: this gateway cannot read the folder either."""

    async def told() -> dict[str, Any]:
        (gateway,) = (await operator.get("/fleet"))["gateways"]
        return dict(gateway)

    answer = await operator.ask("PUT", "/models/org/large?force=true", {**MODEL, "tokenizer": "/nowhere"})
    refused = answer.body["version"]

    async def refuses() -> bool:
        return bool((await told())["refused_version"] == refused)

    await eventually(refuses)
    seen = await told()
    assert seen["version"] < refused
    assert "models.org/large.tokenizer" in seen["refusal"]
    mended = (await operator.ask("PUT", "/models/org/large", MODEL)).body["version"]

    async def serves() -> bool:
        return bool((await told())["version"] == mended)

    await eventually(serves)
    seen = await told()
    assert (seen["refused_version"], seen["refusal"], seen["silent"]) == (None, None, False)
