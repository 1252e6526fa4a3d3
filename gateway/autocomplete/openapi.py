"""The routes of this folder in the OpenAPI document of the inference API."""

from __future__ import annotations

from typing import Any

import msgspec

from gateway.autocomplete.routes import EVENTS_PATH, HEALTH_PATH, SETTING_PATH, TABBY_EVENTS_PATH
from gateway.autocomplete.schema import COMPLETION_ID as ID_PATTERN
from gateway.autocomplete.schema import CompletionEvent, TabbyEvent, TabbyHealth, TabbyServerSetting
from gateway.wire.errors import EVERY_OPERATION, ErrorBody

TEMPLATE = "#/components/schemas/{name}"
REFUSALS = {
    **EVERY_OPERATION,
    400: "The request cannot be understood: `error.param` names the field.",
    401: "No key, or an invalid one.",
    403: "The key lacks the scope `completions`, or the tenant is disabled.",
    404: "The completion id is not valid.",
    413: "The body is too large.",
    429: "The project reports too many events, or the address has too many connections open.",
    503: "Keys cannot be verified now; try again.",
}
COMPLETION_ID = {
    "name": "completion_id",
    "in": "path",
    "required": True,
    "description": "The `id` of an answer, or its `x-request-id`.",
    "schema": {"type": "string", "pattern": ID_PATTERN},
}
SELECT_KIND = {
    "name": "select_kind",
    "in": "query",
    "description": "`line`: a `select` took one line of the completion.",
    "schema": {"type": "string"},
}
ACCEPTED = "Accepted. The event is stored shortly after, best effort; a repetition changes nothing."
REPORT = """Report what a user did with a completion.

Counted for the project of the key, if that project requested the completion. No text is stored."""


def with_autocomplete(document: bytes) -> bytes:
    """The document as JSON, with these paths and their schemas."""
    types = (CompletionEvent, TabbyEvent, TabbyHealth, TabbyServerSetting, ErrorBody)
    (event, tabby_event, health, setting, error), components = msgspec.json.schema_components(
        types, ref_template=TEMPLATE
    )
    whole = msgspec.json.decode(document)
    whole["components"]["schemas"].update(components)
    whole["paths"] |= {
        EVENTS_PATH: {
            "post": {
                **_operation("report_completion_event", REPORT, error, 202, ACCEPTED, body=event),
                "parameters": [COMPLETION_ID],
            }
        },
        TABBY_EVENTS_PATH: {
            "post": {
                **_operation(
                    "report_event", "Report an event, as Tabby's plug-ins do.", error, 200, ACCEPTED, body=tabby_event
                ),
                "parameters": [SELECT_KIND],
            }
        },
        HEALTH_PATH: {
            method: _operation(
                f"{method}_health", "Report health and versions to Tabby's plug-ins.", error, 200, "Done.", health
            )
            for method in ("get", "post")
        },
        SETTING_PATH: {
            "get": _operation(
                "get_server_setting", "Return the settings for Tabby's plug-ins.", error, 200, "Done.", setting
            )
        },
    }
    return msgspec.json.encode(whole)


def _operation(
    name: str,
    summary: str,
    error: dict[str, Any],
    status: int,
    done: str,
    answer: dict[str, Any] | None = None,
    *,
    body: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """answer: None: an empty one."""
    first, _, more = summary.partition("\n\n")
    refusals = {
        str(code): {"description": text, "content": {"application/json": {"schema": error}}}
        for code, text in REFUSALS.items()
    }
    content = {} if answer is None else {"content": {"application/json": {"schema": answer}}}
    operation: dict[str, Any] = {
        "operationId": name,
        "summary": first,
        "responses": {str(status): {"description": done, **content}, **refusals},
    }
    if more:
        operation["description"] = more
    if body is not None:
        operation["requestBody"] = {"required": True, "content": {"application/json": {"schema": body}}}
    return operation
