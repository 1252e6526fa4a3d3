"""Both OpenAPI documents say what the gateway does: schemathesis sends what they allow and what they forbid."""

from __future__ import annotations

import asyncio
import re
from typing import Any, get_type_hints
from uuid import uuid4

import aiohttp
import jsonschema_rs
import msgspec
import pytest

from control.api.document import without_null
from control.api.events.route import EVENTS
from control.console.routes import OPERATIONS as CONSOLE_OPERATIONS
from control.console.routes import PREFIX as CONSOLE
from control.moved_paths import MOVED
from control.openai_organization.operations import OPENAI_OPERATIONS, OPENAI_PREFIX
from control.operations import OPERATIONS, PREFIX
from storage.roles import Role
from tests.control.api.fuzzing import Tenant, fuzz, fuzz_sequences
from tests.control.api.people import People
from tests.gateway.slow_platform import SlowPlatform

BY_KEY = frozenset(each.name for each in OPERATIONS)


def nightly(*examples: int) -> Any:
    """So many in the night: over 100,000 requests in the three tests together."""
    return pytest.param(*examples, marks=[pytest.mark.nightly, pytest.mark.timeout(7_200)])


async def fetch(url: str) -> dict[str, Any]:
    async with aiohttp.ClientSession() as session, session.get(url) as response:
        assert response.status == 200
        assert response.headers["content-type"] == "application/json"
        document: dict[str, Any] = await response.json()
        return document


async def fetch_admin(people: People) -> dict[str, Any]:
    """The admin API's document without the console's own routes and former paths."""
    document = await fetch(f"{people.url}{PREFIX}/openapi.json")
    own = {
        path: operations
        for path, operations in document["paths"].items()
        if not path.startswith(CONSOLE) and path.removeprefix(PREFIX) not in MOVED
    }
    return {**document, "paths": own}


async def test_the_admin_document_lists_every_endpoint(people: People) -> None:
    document = await fetch(f"{people.url}{PREFIX}/openapi.json")
    listed = {
        (method.upper(), path, operation["operationId"])
        for path, operations in document["paths"].items()
        for method, operation in operations.items()
    }
    of_console = {(each.method, CONSOLE + each.path, each.name) for each in CONSOLE_OPERATIONS}
    own = {(each.method, PREFIX + each.path, each.name) for each in (*OPERATIONS, EVENTS)}
    of_openai = {(each.method, OPENAI_PREFIX + each.path, each.name) for each in OPENAI_OPERATIONS}
    former = {
        (each.method, PREFIX + old, document["paths"][PREFIX + old][each.method.lower()]["operationId"])
        for old, new in MOVED.items()
        for each in OPERATIONS
        if each.path == new
    }
    assert listed == own | of_console | of_openai | former
    assert all(document["paths"][path][method.lower()]["deprecated"] for method, path, _ in former)
    for operations in document["paths"].values():
        for operation in operations.values():
            assert operation["summary"]


async def test_the_admin_document_is_what_the_code_decodes_and_answers(people: People) -> None:
    """Bodies, parameters and answers, with everything that they refer to."""
    document = await fetch(f"{people.url}{PREFIX}/openapi.json")

    def whole(found: Any, named: dict[str, Any]) -> Any:
        """A schema with its references in place; of a recursive type one turn."""
        if isinstance(found, list):
            return [whole(each, named) for each in found]
        if not isinstance(found, dict):
            return found
        if "$ref" in found:
            name = found["$ref"].rpartition("/")[2]
            rest = {other: each for other, each in named.items() if other != name}
            return whole(named[name], rest) if name in named else "recursive"
        return {name: whole(each, named) for name, each in found.items()}

    def decoded(kind: Any) -> Any:
        (found,), components = msgspec.json.schema_components([kind])
        return whole(*msgspec.json.decode(msgspec.json.encode((found, components))))

    compared = 0
    for prefix, operations in ((PREFIX, (*OPERATIONS, EVENTS)), (CONSOLE, CONSOLE_OPERATIONS)):
        for each in operations:
            found = whole(
                {
                    name: part
                    for name, part in document["paths"][prefix + each.path][each.method.lower()].items()
                    if name in ("parameters", "requestBody", "responses")
                },
                document["components"]["schemas"],
            )
            given = {one["name"]: one for one in found.get("parameters", ()) if one["in"] == "query"}
            fields = {} if each.query is None else {one.encode_name: one for one in msgspec.structs.fields(each.query)}
            types = {} if each.query is None else get_type_hints(each.query, include_extras=True)
            assert set(given) == set(fields), each.name
            for name, field in fields.items():
                schema = {key: value for key, value in given[name]["schema"].items() if key != "default"}
                assert schema == without_null(decoded(types[field.name])), (each.name, name)
                assert given[name].get("required", False) == field.required, (each.name, name)
            of_path = {one["name"]: one["schema"] for one in found.get("parameters", ()) if one["in"] == "path"}
            hints = getattr(each, "parameters", None) or get_type_hints(each.service)
            for name, schema in of_path.items():
                assert {**decoded(hints[name]), "minLength": 1} == {**schema, "minLength": 1}, (each.name, name)
            assert ("requestBody" in found) == (each.body is not None), each.name
            contents = [] if each.body is None else [(found["requestBody"], each.body)]
            if each is not EVENTS and not getattr(each, "redirects", False):
                contents.append((found["responses"][str(getattr(each, "status", 200))], each.returns))
            for part, kind in contents:
                assert part["content"]["application/json"]["schema"] == decoded(kind), each.name
                compared += 1
            if each.body is not None:
                assert found["requestBody"]["content"]["application/json"]["schema"]["additionalProperties"] is False
    assert compared > len(OPERATIONS)


async def test_every_operation_has_examples_that_its_schemas_take(people: People) -> None:
    document = await fetch(f"{people.url}{PREFIX}/openapi.json")
    for prefix, operations in ((PREFIX, OPERATIONS), (CONSOLE, CONSOLE_OPERATIONS)):
        for operation in operations:
            documented = document["paths"][prefix + operation.path][operation.method.lower()]
            contents = []
            if not getattr(operation, "redirects", False):
                contents.append(documented["responses"][str(getattr(operation, "status", 200))]["content"])
            if operation.body is not None:
                contents.append(documented["requestBody"]["content"])
            for content in contents:
                media = content["application/json"]
                (example,) = media["examples"].values()
                schema = {**media["schema"], "components": document["components"]}
                jsonschema_rs.Draft202012Validator(schema, validate_formats=True).validate(example["value"])
            if operation.body is not None:  # the decoder takes it too, where a schema cannot say all
                msgspec.convert(example["value"], operation.body)


async def test_every_operation_says_what_any_request_may_be_answered(people: People) -> None:
    document = await fetch(f"{people.url}{PREFIX}/openapi.json")
    common = {"400", "401", "403", "404", "408", "409", "413", "429", "431", "500", "503"}
    for operation in OPERATIONS:
        documented = document["paths"][PREFIX + operation.path][operation.method.lower()]
        versioned = {"412"} if operation.versioned else set()
        assert set(documented["responses"]) == {str(operation.status), *common, *versioned}, operation.name
        assert documented["tags"] == [operation.module]


async def stranger_of(people: People) -> Tenant:
    """Somebody who may everything in an organization of their own, where nothing that other tests use can break."""
    operator = await people.operator()
    organization = await operator.make("/organizations", {"name": f"fuzz {uuid4()}"})
    member = await operator.make(
        f"/organizations/{organization['id']}/members", {"email": "f@x.io", "name": "f", "role": Role.OWNER.value}
    )
    made = await operator.make(
        f"/organizations/{organization['id']}/admin-keys", {"principal_id": member["id"], "name": "fuzz"}
    )
    return Tenant(organization["id"], made["secret"])


@pytest.mark.parametrize(("examples", "every"), [(1, 3), nightly(250, 1)])
async def test_schemathesis_finds_nothing_in_the_admin_api(examples: int, every: int, people: People) -> None:
    """In the gate in each third operation: to read one's schemas takes longer than to send what they allow."""
    document = await fetch(f"{people.url}{PREFIX}/openapi.json")
    secret = (await stranger_of(people)).secret
    kept = sorted(BY_KEY)[::every]
    sent = await asyncio.to_thread(fuzz, document, people.url, secret, examples, keep=kept.__contains__)
    assert sent > len(kept) * examples / 2


@pytest.mark.parametrize("examples", [1, nightly(100)])
async def test_schemathesis_finds_nothing_in_the_consoles_own_routes(examples: int, people: People) -> None:
    document = await fetch(f"{people.url}{PREFIX}/openapi.json")
    sent = await asyncio.to_thread(fuzz, document, people.url, "none", examples, keep=lambda name: name not in BY_KEY)
    assert sent >= len(CONSOLE_OPERATIONS)


@pytest.mark.parametrize("lie", ["schema", "status"])
async def test_a_document_that_lies_is_found_out(lie: str, people: People) -> None:
    document = await fetch(f"{people.url}{PREFIX}/openapi.json")
    responses = document["paths"][f"{PREFIX}/me"]["get"]["responses"]
    if lie == "schema":
        responses["200"]["content"]["application/json"]["schema"] = {"type": "object", "required": ["age"]}
    else:
        responses["201"] = responses.pop("200")
    secret = (await people.owner()).secret
    with pytest.raises(BaseExceptionGroup) as found:
        await asyncio.to_thread(fuzz, document, people.url, secret, 1, keep=lambda name: name == "get_me")
    assert {"schema": "age", "status": "Undocumented status code"}[lie] in str(found.value.exceptions)


@pytest.mark.parametrize(("sequences", "steps"), [(3, 10), nightly(400, 50)])
async def test_schemathesis_finds_nothing_in_sequences(sequences: int, steps: int, people: People) -> None:
    document = await fetch_admin(people)
    tenant, other = await stranger_of(people), await stranger_of(people)
    sent = await asyncio.to_thread(fuzz_sequences, document, people.url, tenant, other, sequences, steps)
    assert sent > sequences * steps / 4


@pytest.mark.nightly
async def test_what_another_tenant_reads_too_is_found_out(people: People) -> None:
    document, tenant = await fetch_admin(people), await stranger_of(people)
    with pytest.raises(AssertionError, match="another tenant reads it too"):
        await asyncio.to_thread(fuzz_sequences, document, people.url, tenant, tenant, 50, 20)


@pytest.mark.parametrize("examples", [4, nightly(1_600)])
async def test_schemathesis_finds_nothing_in_the_inference_api(examples: int, platform: SlowPlatform) -> None:
    document = await fetch(f"{platform.url}/openapi.json")
    generating = {"/v1/chat/completions", "/v1/completions", "/infill", "/completion"}
    generating |= {"/v1/fim/completions", "/v1/engines/{model}/completions"}
    generating |= {"/v1/embeddings", "/v1/rerank", "/v1/score", "/tokenize", "/detokenize"}
    generating |= {"/v1/messages", "/v1/messages/count_tokens", "/v1/responses", "/v1/responses/input_tokens"}
    generating |= {f"/v1/responses/{{response_id}}{end}" for end in ("", "/cancel", "/input_items")}
    generating |= {f"/v1/conversations{end}" for end in ("", "/{conversation_id}", "/{conversation_id}/items")}
    generating.add("/v1/conversations/{conversation_id}/items/{item_id}")
    around = {"/v1/completions/{completion_id}/events", "/v1/events", "/v1/health", "/v1beta/server_setting"}
    around |= {"/v1/stream-audit", "/v1/files", "/v1/files/{file_id}", "/v1/files/{file_id}/content"}
    around |= {"/v1/batches", "/v1/batches/{batch_id}", "/v1/batches/{batch_id}/cancel"}
    assert set(document["paths"]) == {*generating, *around, "/v1/models", "/v1/models/{model}"}
    for kind in (
        "ChatRequest",
        "CompletionRequest",
        "FimRequest",
        "InfillRequest",
        "LlamaCompletionRequest",
        "EmbeddingRequest",
        "RerankRequest",
        "ScoreRequest",
        "TokenizeRequest",
        "DetokenizeRequest",
    ):  # otherwise nearly every request would end at the model's name
        document["components"]["schemas"][kind]["properties"]["model"] = {
            "enum": ["wide", "narrow", "vectors", "ranks", "none"]
        }
    # answers take as long as they are asked to, minutes even: tests/gateway/stream_audit goes through its parameters
    del document["paths"]["/v1/stream-audit"]
    sent = await asyncio.to_thread(fuzz, document, platform.url, platform.key, examples)
    assert sent > 3 * examples


async def test_parameters_with_a_form_of_their_own_have_a_pattern(people: People) -> None:
    """Fault: the document allowed texts that the endpoint refuses."""
    document = await fetch_admin(people)
    found: dict[str, set[str]] = {}
    for operations in document["paths"].values():
        for operation in operations.values():
            for parameter in operation.get("parameters", ()):
                found.setdefault(parameter["name"], set()).add(str(parameter["schema"].get("pattern")))
    assert found["cursor"] == {"^W[A-Za-z0-9_-]+$"}
    for name in ("start", "end", "before_start", "before_end"):
        assert found[name] == {"^20[2-9][0-9]-"}
    [topics] = found["topics"]
    assert re.search(topics, "usage,requests")
    assert not re.search(topics, "usage,")
    streamed = document["paths"][PREFIX + EVENTS.path]["get"]["responses"]["200"]["content"]["text/event-stream"]
    assert "schema" not in streamed
