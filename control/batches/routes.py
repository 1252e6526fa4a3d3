"""Routes of files and batches: OpenAI's paths, parameters and objects."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from typing import Any

import msgspec
from litestar import Request, Response, delete, get, post
from litestar.datastructures import State
from litestar.exceptions import InternalServerException
from litestar.handlers import HTTPRouteHandler
from litestar.params import FromPath
from litestar.response import Stream

from contracts.dated_request_id import mint
from contracts.errors import InvalidField
from control.batches import batches, files
from control.batches.api import BatchApi
from control.batches.config import FILE_BYTES
from control.batches.objects import NewBatch
from control.batches.query import BatchQuery, FileQuery, NoQuery
from control.batches.upload import FORM_BYTES
from gateway.auth.key_record import KeyRecord
from gateway.http.client_connection import SCOPE_KEY
from gateway.http.request_body import whole_body
from gateway.wire.body_shape import BodyShape
from gateway.wire.config import RequestConfig
from gateway.wire.decode import decode, validation_error
from gateway.wire.key_header import authorization_of

FILES_PATH, BATCHES_PATH = "/v1/files", "/v1/batches"
PART_BYTES = 1_000_000
BATCH_BYTES = 100_000
"""Limit of the body that creates a batch, in bytes."""

AnyRequest = Request[Any, Any, State]
_NEW_BATCH = msgspec.json.Decoder(NewBatch)


def batch_routes(api: BatchApi, limits: RequestConfig) -> list[HTTPRouteHandler]:
    """The routes of files and batches. limits: limits of a body's structure."""

    async def admitted(request: AnyRequest) -> KeyRecord:
        key = await api.key(authorization_of(dict(request.scope["headers"])))
        request.scope[SCOPE_KEY].serve(key.caller.organization_id)  # type: ignore[literal-required]
        return key

    @post(FILES_PATH, status_code=200, request_max_body_size=FILE_BYTES + FORM_BYTES)
    async def create_file(request: AnyRequest) -> Response[bytes]:
        key = await admitted(request)
        query_of(NoQuery, request)
        return _answer(await api.upload(key, request.headers.get("content-type", ""), received_body(request)))

    @get(FILES_PATH)
    async def list_files(request: AnyRequest) -> Response[bytes]:
        key, query = await admitted(request), query_of(FileQuery, request)
        ascending = query.order == "asc"
        found = await api.do(files.listed, key.caller, query.purpose, query.after, query.limit, ascending=ascending)
        return _answer(found)

    @get(f"{FILES_PATH}/{{file_id:str}}")
    async def get_file(request: AnyRequest, file_id: FromPath[str]) -> Response[bytes]:
        key = await admitted(request)
        return _answer(await api.do(files.find, key.caller, file_id))

    @delete(f"{FILES_PATH}/{{file_id:str}}", status_code=200)
    async def delete_file(request: AnyRequest, file_id: FromPath[str]) -> Response[bytes]:
        key = await admitted(request)
        return _answer(await api.delete(key, file_id))

    @get(f"{FILES_PATH}/{{file_id:str}}/content")
    async def get_content(request: AnyRequest, file_id: FromPath[str]) -> Stream:
        key = await admitted(request)
        file, chunks = await api.content(key, file_id)
        headers = {**_headers(), "content-length": str(file.bytes)}
        return Stream(chunks, headers=headers, media_type="application/octet-stream")

    @post(BATCHES_PATH, status_code=200)
    async def create_batch(request: AnyRequest) -> Response[bytes]:
        key = await admitted(request)
        query_of(NoQuery, request)
        headers = dict(request.scope["headers"])
        raw = await whole_body(headers, request.receive, BATCH_BYTES, BodyShape(limits).feed)
        body = decode(_NEW_BATCH, raw, NewBatch)
        api.require_endpoint(key, body.endpoint)
        return _answer(await api.do(batches.create, key.caller, body))

    @get(BATCHES_PATH)
    async def list_batches(request: AnyRequest) -> Response[bytes]:
        key, query = await admitted(request), query_of(BatchQuery, request)
        return _answer(await api.do(batches.listed, key.caller, query.after, query.limit))

    @get(f"{BATCHES_PATH}/{{batch_id:str}}")
    async def get_batch(request: AnyRequest, batch_id: FromPath[str]) -> Response[bytes]:
        key = await admitted(request)
        return _answer(await api.do(batches.find, key.caller, batch_id))

    @post(f"{BATCHES_PATH}/{{batch_id:str}}/cancel", status_code=200)
    async def cancel_batch(request: AnyRequest, batch_id: FromPath[str]) -> Response[bytes]:
        key = await admitted(request)
        return _answer(await api.do(batches.cancel, key.caller, batch_id))

    return [
        *(create_file, list_files, get_file, delete_file, get_content),
        *(create_batch, list_batches, get_batch, cancel_batch),
    ]


async def received_body(request: AnyRequest) -> AsyncIterator[bytes]:
    """The body as it arrives. `body_timeout_s` applies to each part of it, as a large file may take longer. Raises
    InvalidField, which is not logged as an internal error, if the client leaves before the end."""
    connection, part_bytes = request.scope[SCOPE_KEY], 0  # type: ignore[literal-required]
    try:
        async for chunk in request.stream():
            part_bytes += len(chunk)
            if part_bytes >= PART_BYTES:
                part_bytes = 0
                connection.receiving()
            yield chunk
    except InternalServerException as error:
        if error.detail != "client disconnected prematurely":
            raise
        raise InvalidField("The request ended before its body was complete.", param="file") from None


def query_of(kind: type[Any], request: AnyRequest) -> Any:
    """Convert the query's parameters to a struct. Raises a RequestError that names the parameter."""
    values: Mapping[str, str] = dict(request.query_params.items())
    try:
        return msgspec.convert(values, kind, strict=False)
    except msgspec.ValidationError as error:
        raise validation_error(str(error), kind) from None


def _answer(found: msgspec.Struct) -> Response[bytes]:
    return Response(msgspec.json.encode(found), status_code=200, headers=_headers(), media_type="application/json")


def _headers() -> dict[str, str]:
    return {"x-request-id": mint(), "cache-control": "no-store", "x-content-type-options": "nosniff"}
