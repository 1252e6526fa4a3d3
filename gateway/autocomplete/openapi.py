"""The routes of this folder in the OpenAPI document of the inference API."""

from __future__ import annotations

import msgspec

from gateway.autocomplete.routes import EVENTS_PATH, HEALTH_PATH, SETTING_PATH, TABBY_EVENTS_PATH
from gateway.autocomplete.schema import COMPLETION_ID as ID_PATTERN
from gateway.autocomplete.schema import CompletionEvent, TabbyEvent, TabbyHealth, TabbyServerSetting
from gateway.wire.errors import EVERY_OPERATION, ErrorBody
from gateway.wire.operation import TEMPLATE, body_of, operation

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
    report, _, counted = REPORT.partition("\n\n")
    tabby_report = "Report an event, as Tabby's plug-ins do."
    whole["paths"] |= {
        EVENTS_PATH: {
            "post": {
                **operation("report_completion_event", report, error, REFUSALS, status=202, done=ACCEPTED),
                "description": counted,
                "requestBody": body_of(event),
                "parameters": [COMPLETION_ID],
            }
        },
        TABBY_EVENTS_PATH: {
            "post": {
                **operation("report_event", tabby_report, error, REFUSALS, done=ACCEPTED),
                "requestBody": body_of(tabby_event),
                "parameters": [SELECT_KIND],
            }
        },
        HEALTH_PATH: {
            method: operation(
                f"{method}_health", "Report health and versions to Tabby's plug-ins.", error, REFUSALS, health
            )
            for method in ("get", "post")
        },
        SETTING_PATH: {
            "get": operation(
                "get_server_setting", "Return the settings for Tabby's plug-ins.", error, REFUSALS, setting
            )
        },
    }
    return msgspec.json.encode(whole)
