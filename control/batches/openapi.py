"""Files and batches in the OpenAPI document of the inference API."""

from __future__ import annotations

from typing import Any, get_type_hints

import msgspec

from control.batches.objects import BatchObject, DeletedFile, FileObject, Listed, NewBatch
from control.batches.query import BatchQuery, FileQuery
from gateway.wire.errors import EVERY_OPERATION, ErrorBody

TEMPLATE = "#/components/schemas/{name}"
REFUSALS = {
    **EVERY_OPERATION,
    400: "The request cannot be understood: `error.param` names the field.",
    401: "No key, or an invalid one.",
    403: "The key lacks the scope, or the tenant is disabled.",
    404: "The project has no such file or batch.",
    409: "A batch needs the file, or is too late to cancel.",
    413: "The file, the body, or all files of the organization together are too large.",
    429: "The organization has too many batches, or the address too many connections.",
    503: "The database or the store of files cannot be reached; try again.",
}
UPLOAD = {
    "type": "object",
    "required": ["file", "purpose"],
    "additionalProperties": False,
    "properties": {
        "file": {"type": "string", "format": "binary", "description": "JSON lines, at most 200 MB."},
        "purpose": {"enum": ["batch"]},
        "expires_after[anchor]": {"enum": ["created_at"]},
        "expires_after[seconds]": {"type": "integer", "minimum": 3_600, "maximum": 2_592_000},
    },
}
CREATE = """Run the requests of a file within 24 hours.

They run in the class `offline`, and cost what it costs. The batch's files hold one result for each line."""


def with_batches(document: bytes) -> bytes:
    """The document as JSON, with these paths and their schemas."""
    types = (FileObject, BatchObject, DeletedFile, NewBatch, Listed[FileObject], Listed[BatchObject], ErrorBody)
    (file, batch, deleted, new, files, batches, error), components = msgspec.json.schema_components(
        types, ref_template=TEMPLATE
    )
    of_file, of_batch = _path("file_id", "^file-[0-9a-f]{24}$"), _path("batch_id", "^batch_[0-9a-f]{24}$")
    whole = msgspec.json.decode(document)
    whole["components"]["schemas"].update(components)

    def operation(name: str, summary: str, answer: Any, **more: Any) -> dict[str, Any]:
        return _operation(name, summary, {"application/json": {"schema": answer}}, error, more)

    whole["paths"] |= {
        "/v1/files": {
            "post": operation(
                "create_file", "Upload a file for a batch.", file, requestBody=_body(UPLOAD, "multipart/form-data")
            ),
            "get": operation("list_files", "The project's files.", files, parameters=_query(FileQuery)),
        },
        "/v1/files/{file_id}": {
            "get": operation("get_file", "One file.", file, parameters=[of_file]),
            "delete": operation("delete_file", "Delete a file.", deleted, parameters=[of_file]),
        },
        "/v1/files/{file_id}/content": {
            "get": _operation(
                "get_file_content",
                "A file's content.",
                {"application/octet-stream": {}},
                error,
                {"parameters": [of_file]},
            )
        },
        "/v1/batches": {
            "post": operation("create_batch", CREATE, batch, requestBody=_body(new, "application/json")),
            "get": operation("list_batches", "The project's batches.", batches, parameters=_query(BatchQuery)),
        },
        "/v1/batches/{batch_id}": {"get": operation("get_batch", "One batch.", batch, parameters=[of_batch])},
        "/v1/batches/{batch_id}/cancel": {
            "post": operation("cancel_batch", "Start no more lines of a batch.", batch, parameters=[of_batch])
        },
    }
    return msgspec.json.encode(whole)


def _path(name: str, pattern: str) -> dict[str, Any]:
    return {"name": name, "in": "path", "required": True, "schema": {"type": "string", "pattern": pattern}}


def _query(kind: type[msgspec.Struct]) -> list[dict[str, Any]]:
    hints = get_type_hints(kind, include_extras=True)
    return [
        {"name": field.name, "in": "query", "required": False, "schema": msgspec.json.schema(hints[field.name])}
        for field in msgspec.structs.fields(kind)
    ]


def _body(schema: dict[str, Any], kind: str) -> dict[str, Any]:
    return {"required": True, "content": {kind: {"schema": schema}}}


def _operation(
    name: str, summary: str, answer: dict[str, Any], error: dict[str, Any], more: dict[str, Any]
) -> dict[str, Any]:
    first, _, described = summary.partition("\n\n")
    refusals = {
        str(code): {"description": text, "content": {"application/json": {"schema": error}}}
        for code, text in REFUSALS.items()
    }
    description = {"description": described} if described else {}
    responses = {"200": {"description": "Done.", "content": answer}, **refusals}
    return {"operationId": name, "summary": first, **description, "responses": responses, **more}
