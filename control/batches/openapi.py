"""Files and batches in the OpenAPI document of the inference API."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec

from control.api.document import TEMPLATE, parameters, refusals, schema
from control.batches.objects import (
    BATCH_ID,
    FILE_ID,
    BatchObject,
    DeletedFile,
    ExpiresAfter,
    FileObject,
    Listed,
    NewBatch,
)
from control.batches.query import BatchQuery, FileQuery
from gateway.wire.errors import EVERY_OPERATION, ErrorBody
from gateway.wire.operation import ANY_KEY

IDS = {
    f"{name}_id": Annotated[str, msgspec.Meta(pattern=f"^{start}[0-9a-f]{{24}}$")]
    for name, start in (("file", FILE_ID), ("batch", BATCH_ID))
}
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
CREATE = """Run the requests of a file within 24 hours.

They run in the class `offline`, and cost what it costs. The batch's files hold one result for each line."""


def with_batches(document: bytes) -> bytes:
    """Add the paths of files and batches and their schemas to a document. Both are JSON."""
    _, components = msgspec.json.schema_components(
        [FileObject, BatchObject, DeletedFile, NewBatch, Listed[FileObject], Listed[BatchObject], ErrorBody],
        ref_template=TEMPLATE,
    )
    whole = msgspec.json.decode(document)
    whole["components"]["schemas"].update(components)
    file, batch = "/v1/files/{file_id}", "/v1/batches/{batch_id}"
    whole["paths"] |= {
        "/v1/files": {
            "post": _operation(
                "create_file", "Upload a file for a batch.", FileObject, body=_body(_upload(), "multipart/form-data")
            ),
            "get": _operation("list_files", "The project's files.", Listed[FileObject], query=FileQuery),
        },
        file: {
            "get": _operation("get_file", "One file.", FileObject, file),
            "delete": _operation("delete_file", "Delete a file.", DeletedFile, file),
        },
        f"{file}/content": {"get": _operation("get_file_content", "A file's content.", None, file)},
        "/v1/batches": {
            "post": _operation("create_batch", CREATE, BatchObject, body=_body(schema(NewBatch))),
            "get": _operation("list_batches", "The project's batches.", Listed[BatchObject], query=BatchQuery),
        },
        batch: {"get": _operation("get_batch", "One batch.", BatchObject, batch)},
        f"{batch}/cancel": {
            "post": _operation("cancel_batch", "Start no more lines of a batch.", BatchObject, batch),
        },
    }
    return msgspec.json.encode(whole)


def _upload() -> dict[str, Any]:
    """The form of an upload: its file, its purpose, and how long it is kept."""
    kept = msgspec.json.schema(ExpiresAfter)["$defs"]["ExpiresAfter"]["properties"]
    return {
        "type": "object",
        "required": ["file", "purpose"],
        "additionalProperties": False,
        "properties": {
            "file": {"type": "string", "format": "binary", "description": "JSON lines, at most 200 MB."},
            "purpose": schema(Literal["batch"]),
            **{f"expires_after[{name}]": found for name, found in kept.items()},
        },
    }


def _body(found: dict[str, Any], kind: str = "application/json") -> dict[str, Any]:
    return {"required": True, "content": {kind: {"schema": found}}}


def _operation(
    name: str,
    summary: str,
    answer: Any,
    path: str = "",
    query: type[msgspec.Struct] | None = None,
    body: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """answer: the response's type; None for a file's content."""
    first, _, described = summary.partition("\n\n")
    content = {"application/octet-stream": {}} if answer is None else {"application/json": {"schema": schema(answer)}}
    return {
        "operationId": name,
        "summary": first,
        **({"description": described} if described else {}),
        "security": ANY_KEY,
        **({"parameters": found} if (found := parameters(path, IDS, query)) else {}),
        **({} if body is None else {"requestBody": body}),
        "responses": {"200": {"description": "Done.", "content": content}, **refusals(REFUSALS)},
    }
