"""What `/openapi.json` says of requests beside their bodies."""

from __future__ import annotations

import re

import msgspec

from contracts.dated_request_id import mint
from contracts.request_id import CHAT_PREFIX, COMPLETION_PREFIX, answer_id
from gateway.autocomplete.openapi import with_autocomplete
from gateway.autocomplete.routes import EVENTS_PATH
from gateway.http.client_family import CLIENTS, NAMED_BY
from gateway.stream_audit.config import StreamAuditConfig
from gateway.stream_audit.openapi import with_stream_audit
from gateway.wire.anthropic.openapi import ANTHROPIC_OPERATIONS
from gateway.wire.llama_cpp.openapi import LLAMA_CPP_OPERATIONS
from gateway.wire.llama_cpp.schema import REFUSED
from gateway.wire.mistral.openapi import FIM_OPERATION
from gateway.wire.openai.openapi import OPERATIONS, document
from gateway.wire.tabby.openapi import TABBY_OPERATION

EMPTY: list[object] = [None, False, 0, "", [], {}]


def test_whatever_generates_text_takes_the_header_that_names_the_client() -> None:
    paths = msgspec.json.decode(document())["paths"]
    for operation in OPERATIONS:
        parameters = {parameter["name"]: parameter for parameter in paths[operation.path]["post"]["parameters"]}
        told = parameters[NAMED_BY.decode()]
        assert (told["in"], told["required"]) == ("header", False)
        assert told["schema"]["examples"] == list(CLIENTS)
        assert ("model" in parameters) == ("{model}" in operation.path)


def test_what_is_refused_is_not_documented_as_free() -> None:
    operations = [*ANTHROPIC_OPERATIONS, FIM_OPERATION, *LLAMA_CPP_OPERATIONS, TABBY_OPERATION]
    told = msgspec.json.decode(with_stream_audit(with_autocomplete(document(operations)), StreamAuditConfig()))
    schemas = told["components"]["schemas"]
    for name in ("InfillRequest", "LlamaCompletionRequest"):
        properties = schemas[name]["properties"]
        assert {field for field in REFUSED if properties[field]["enum"] == EMPTY} == set(REFUSED)
    assert schemas["EngineCompletionRequest"]["properties"]["model"]["const"] == ""
    counted, generated = (told["paths"][one.path]["post"]["responses"]["200"] for one in reversed(ANTHROPIC_OPERATIONS))
    assert ("text/event-stream" in counted["content"], "text/event-stream" in generated["content"]) == (False, True)
    [event] = told["paths"][EVENTS_PATH]["post"]["parameters"]
    for schema in (event["schema"], schemas["TabbyEvent"]["properties"]["completion_id"]):
        for made in (mint(), answer_id(CHAT_PREFIX, mint()), answer_id(COMPLETION_PREFIX, mint())):
            assert re.search(schema["pattern"], made)
        assert not re.search(schema["pattern"], "x")
    for path, operation in ((path, each) for path, methods in told["paths"].items() for each in methods.values()):
        assert "413" in operation["responses"] or "requestBody" not in operation, path
