"""What must hold for every operation there is, taken from the values that declare them: what it leaves, what it says.
Who may, and to whose things, is test_allowed.py's.

An operation that is added is tested here without a line more, or fails for want of an example body.
"""

from __future__ import annotations

import base64
from typing import Any
from urllib.parse import quote
from uuid import UUID, uuid4

import msgspec
import pytest

from contracts.choices import choices
from control.api.events.route import EVENTS
from control.api.operation import WITH_SLASHES, Operation
from control.operations import OPERATIONS, PREFIX, admin_operations
from gateway.auth.keys import mint
from gateway.wire.config import RequestConfig
from storage.roles import Role
from tests.audited import all_audited
from tests.control.api.examples import at_every_level, body_for, things_of
from tests.control.api.people import Client, Credential, People

NO_MOMENTS = ("0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-14:00")
"""Well-formed, and outside the years that UTC and the database's driver have."""
EACH = tuple(at_every_level(OPERATIONS))
BY_NAME = {operation.name: operation for operation in EACH}


def path_of(operation: Operation, values: dict[str, object]) -> str:
    """The path with the ids of somebody's things in it."""
    path = operation.path
    for name in operation.parameters:
        path = path.replace(f"{{{name}}}", str(values[name]))
    return path


async def ask(client: Client, operation: Operation, values: dict[str, object], body: object = None) -> Any:
    return await client.ask(operation.method, path_of(operation, values), body)


async def ask_wrongly(client: Client, operation: Operation, values: dict[str, object]) -> Any:
    """The answer to a request whose body or query never decodes: only what comes before that is tried."""
    if operation.body is not None:
        return await ask(client, operation, values, {"no such field": 1})
    return await client.ask(operation.method, path_of(operation, values) + "?no_such_parameter=1")


def test_routes_are_the_operations() -> None:
    routed = {
        (method, route.path)
        for route in admin_operations(RequestConfig()).routes
        for method in getattr(route, "methods", ())
        if method != "OPTIONS"
    }
    declared = {(operation.method, _litestar_path(operation)) for operation in (*OPERATIONS, EVENTS)}
    assert routed == declared
    assert len(BY_NAME) == len(EACH)


def _litestar_path(operation: Operation) -> str:
    path = PREFIX + operation.path
    for name in operation.parameters:
        kind = "path" if name in WITH_SLASHES else "str"
        path = path.replace(f"{{{name}}}", f"{{{name}:{kind}}}")
    return path


async def test_lists_hold_nothing_of_others(people: People) -> None:
    # Random ids only: a month or a small number is everybody's.
    theirs = {text for value in (await things_of(people, "theirs")).values() if len(text := str(value)) >= 32}
    owner, ours = await people.owner(), await things_of(people, "ours")
    for operation in OPERATIONS:
        if operation.method == "GET" and operation.query is not None and not operation.operator_only:
            answer = await ask(owner, operation, ours)
            assert answer.status == 200, (operation.name, answer)
            text = msgspec.json.encode(answer.body).decode()
            assert not [one for one in theirs if one in text], operation.name


CHANGES = [operation.name for operation in EACH if operation.method != "GET"]


@pytest.mark.parametrize(
    ("name", "credential"),
    [
        pytest.param(name, credential, marks=[] if (at + number) % 2 else [pytest.mark.nightly])
        for number, name in enumerate(CHANGES)
        for at, credential in enumerate([Credential.MEMBER_KEY, Credential.SESSION])
    ],
)
async def test_every_change_leaves_one_audit_row_that_names_the_actor(
    name: str, credential: Credential, people: People
) -> None:
    operation = BY_NAME[name]
    organization = "operator" if operation.operator_only else "ours"
    client = await people.as_(Role.OWNER, organization, credential)
    values = await things_of(people, organization, fresh=True, only=operation.parameters)
    body = await body_for(people, operation, organization)
    async with all_audited(people.database) as rows:  # compared with what the tables say
        answer = await ask(client, operation, values, body)
    assert answer.status == operation.status, answer
    me = await client.get("/me")
    assert len(rows) == 1, rows
    row = rows[0]
    assert (row["actor_kind"], str(row["actor_id"]), row["actor_name"]) == ("member", me["id"], me["email"])
    assert (row["admin_key_id"] is None) == (credential == Credential.SESSION)
    assert row["request_id"] == answer.headers["x-request-id"]
    was, now = row["before"] is not None, row["after"] is not None
    if operation.name.startswith(("create_", "start_")):
        assert (was, now) == (False, True)
    elif operation.method == "PATCH":
        assert (was, now) == (True, True)
    else:
        assert was or now
    assert "sk-slip-" not in str(dict(row)).replace("sk-slip-…", "").replace("sk-slip-admin-…", "")
    assert "whsec_" not in str(dict(row))


async def test_no_operation_is_open_without_a_key(people: People) -> None:
    nobody, ours = people.with_secret(""), await things_of(people, "ours")
    for operation in EACH:
        answer = await ask_wrongly(nobody, operation, ours)
        assert (answer.status, answer.body["error"]["code"]) == (401, "missing_api_key"), operation.name


async def test_an_inference_key_and_a_mistyped_key_open_nothing(people: People) -> None:
    good = (await people.owner()).secret
    for secret, code in (
        (mint(people.pepper).secret, "wrong_key_kind"),
        (good[:-1] + ("x" if good[-1] != "x" else "y"), "invalid_api_key"),
    ):
        answer = await people.with_secret(secret).ask("GET", "/me")
        assert (answer.status, answer.body["error"]["code"]) == (401, code)


async def test_an_id_that_is_no_uuid_is_not_found(people: People) -> None:
    operator, ours = await people.operator(), await things_of(people, "operator")
    for operation in OPERATIONS:
        body = await body_for(people, operation, "operator")
        for parameter in (name for name, kind in operation.parameters.items() if kind is UUID):
            answer = await ask(operator, operation, {**ours, parameter: "none"}, body)
            assert (answer.status, answer.body["error"]["code"]) == (404, "not_found"), operation.name
            noun = parameter.removesuffix("_id").replace("_", " ")
            assert answer.body["error"]["message"] == f"There is no {noun} 'none': ids are UUIDs."


async def test_the_text_null_is_no_value_of_a_parameter(people: People) -> None:
    operator, values, asked = await people.operator(), await things_of(people, "operator"), 0
    for operation in OPERATIONS:
        if operation.query is None:
            continue
        body = await body_for(people, operation, "operator")
        for field in msgspec.structs.fields(operation.query):
            kinds = msgspec.json.schema(field.type).get("anyOf", ())
            if any(kind.get("type") == "string" and "format" not in kind for kind in kinds):
                continue  # a name may be `null`
            for text in ("null", "NULL"):
                path = f"{path_of(operation, values)}?{field.encode_name}={text}"
                answer = await operator.ask(operation.method, path, body)
                assert answer.status == 400, (operation.name, field.encode_name, answer)
                assert answer.body["error"]["param"].partition("[")[0] == field.encode_name
                asked += 1
    assert asked > 60


async def test_a_number_is_no_moment(people: People) -> None:
    operator, values, asked = await people.operator(), await things_of(people, "operator"), 0
    for operation in OPERATIONS:
        for field in msgspec.structs.fields(operation.query) if operation.query is not None else ():
            if "date-time" not in str(msgspec.json.schema(field.type)):
                continue
            for text in ("0", "1767225600.5"):
                answer = await operator.ask("GET", f"{path_of(operation, values)}?{field.encode_name}={text}")
                assert answer.status == 400, (operation.name, field.encode_name, text)
                assert answer.body["error"]["param"] == field.encode_name
                asked += 1
    assert asked > 10


async def test_options_tells_every_method_of_the_path_whoever_asks(people: People) -> None:
    values = await things_of(people, "operator")
    for operation in OPERATIONS:
        methods = {each.method for each in OPERATIONS if each.path == operation.path}
        methods |= {"HEAD"} if "GET" in methods else set()
        for asker in (await people.owner(), people.with_secret("")):
            answer = await asker.ask("OPTIONS", path_of(operation, values))
            assert answer.status == 204, operation.name
            assert answer.headers["allow"] == ", ".join(sorted({*methods, "OPTIONS"})), operation.name
        refused = await asker.ask("TRACE", path_of(operation, values))
        assert (refused.status, refused.headers["allow"]) == (405, answer.headers["allow"]), operation.name


async def connections_of(people: People) -> set[int]:
    """The server's processes behind the gateway's pool, after a request that uses one."""
    await (await people.operator()).get("/me")
    rows = await people.database.fetch(
        "SELECT pid FROM pg_stat_activity WHERE application_name = 'slipstream-admin' AND datname = current_database()"
    )
    return {row["pid"] for row in rows}


@pytest.mark.parametrize(
    "values",
    [
        *([NO_MOMENTS[0], *rest] for rest in ([], ["x"], [str(UUID(int=1))])),
        [NO_MOMENTS[1], str(UUID(int=1))],
        ["2026-01-01T00:00:00", str(UUID(int=1))],
        ["req_z", 2**15],
        ["req_z", -(2**15) - 1],
        [2**63],
    ],
    ids=str,
)
async def test_a_cursor_beyond_what_a_column_holds_is_refused_and_costs_no_connection(
    values: list[object], people: People
) -> None:
    operator, things, asked = await people.operator(), await things_of(people, "operator"), 0
    cursor = base64.urlsafe_b64encode(msgspec.json.encode(values)).decode().rstrip("=")
    before = await connections_of(people)
    for operation in OPERATIONS:
        if (
            operation.name in ("list_requests", "list_requests_of_all", "list_completion_texts", "list_prefix_texts")
            and len(values) == 1
            and isinstance(values[0], str)
        ):
            continue  # sorted by one text, and this is one
        fields = () if operation.query is None else operation.query.__struct_fields__
        for more in ("", "&bucket=hour") if "bucket" in fields else ("",) if "cursor" in fields else ():
            answer = await operator.ask("GET", f"{path_of(operation, things)}?cursor={cursor}{more}")
            assert (answer.status, answer.body["error"].get("param")) == (400, "cursor"), (operation.name, answer)
            asked += 1
    assert asked > 15
    assert before
    assert before <= await connections_of(people)


@pytest.mark.parametrize("text", NO_MOMENTS)
async def test_a_moment_that_utc_does_not_have_is_refused_and_costs_no_connection(text: str, people: People) -> None:
    before, in_queries, in_bodies = await connections_of(people), 0, 0
    for operation in OPERATIONS:
        client = await people.as_(Role.OWNER, "operator" if operation.operator_only else "ours")
        path = path_of(operation, await things_of(people, "operator" if operation.operator_only else "ours"))
        for field in moments_of(operation.query):
            answer = await client.ask("GET", f"{path}?{field}={quote(text)}")
            assert (answer.status, answer.body["error"]["param"]) == (400, field), (operation.name, answer)
            in_queries += 1
        for field in moments_of(operation.body):
            body = await body_for(people, operation, "operator" if operation.operator_only else "ours")
            answer = await client.ask(operation.method, path, {**(body or {}), field: text})
            assert (answer.status, answer.body["error"]["param"]) == (400, field), (operation.name, answer)
            in_bodies += 1
    assert in_queries >= 8
    assert in_bodies >= 6
    assert before <= await connections_of(people)


def moments_of(kind: type[msgspec.Struct] | None) -> list[str]:
    fields = () if kind is None else msgspec.structs.fields(kind)
    return [each.encode_name for each in fields if "datetime" in str(each.type)]


CHOSEN = [
    (endpoint, struct is endpoint.query, field.encode_name, values)
    for endpoint in OPERATIONS
    for struct in (endpoint.body, endpoint.query)
    if struct is not None
    for field in msgspec.structs.fields(struct)
    if (values := choices(struct, field.encode_name) or choices(struct, f"{field.encode_name}[0]"))
]


async def test_a_value_of_an_enumeration_is_answered_with_all_of_them(people: People) -> None:
    operator = await people.operator()
    for endpoint, in_query, name, values in CHOSEN:
        nobody: dict[str, object] = dict.fromkeys(endpoint.parameters, uuid4())
        path = path_of(endpoint, nobody)
        if in_query:
            answers = [await operator.ask(endpoint.method, f"{path}?{name}=nonsense")]
        else:
            answers = [await operator.ask(endpoint.method, path, {name: wrong}) for wrong in ("nonsense", ["nonsense"])]
        said = [answer.body["error"]["message"] for answer in answers if answer.status == 400]
        ends = f": 'nonsense'. It must be one of: {', '.join(values)}."
        assert any(message.endswith(ends) for message in said), (endpoint.name, name, said)
    assert CHOSEN
