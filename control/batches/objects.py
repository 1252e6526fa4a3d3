"""OpenAI's file and batch objects, lists of them, and the bodies that create them."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Any, Generic, Literal, TypeVar

import msgspec
from msgspec import Meta

from control.batches.config import KEPT_S, MIN_KEPT_S
from control.batches.line import Endpoint, LineError
from control.batches.machine import UNFINISHED, BatchStatus
from storage.rows import json_of

ItemT = TypeVar("ItemT")
FILE_ID, BATCH_ID = "file-", "batch_"
RANDOM_BYTES = 12
ANY_FILE, ANY_BATCH = (f"{prefix}{'[0-9a-f]' * 2 * RANDOM_BYTES}" for prefix in (FILE_ID, BATCH_ID))
"""Patterns of ids, for `fnmatch`."""


def new_id(prefix: str) -> str:
    """A random id, which cannot be guessed."""
    return prefix + secrets.token_hex(RANDOM_BYTES)


class ExpiresAfter(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How long a file is stored after its creation."""

    anchor: Literal["created_at"]
    seconds: Annotated[int, Meta(ge=MIN_KEPT_S, le=KEPT_S)]


Metadata = Annotated[
    dict[Annotated[str, Meta(max_length=64)], Annotated[str, Meta(max_length=512)]], Meta(max_length=16)
]


class NewBatch(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The body of a request that creates a batch."""

    input_file_id: str
    endpoint: Endpoint
    completion_window: Literal["24h"]
    metadata: Metadata | None = None
    output_expires_after: ExpiresAfter | None = None


class FileObject(msgspec.Struct, frozen=True, kw_only=True):
    """A file. Times are in seconds since 1970."""

    id: str
    bytes: int
    created_at: int
    expires_at: int
    filename: str
    purpose: Literal["batch", "batch_output"]
    object: Literal["file"] = "file"
    status: Literal["processed"] = "processed"


class DeletedFile(msgspec.Struct, frozen=True, kw_only=True):
    """A deleted file."""

    id: str
    object: Literal["file"] = "file"
    deleted: Literal[True] = True


class RequestCounts(msgspec.Struct, frozen=True):
    """Numbers of lines: all, those in the output file, and those in the error file."""

    total: int
    completed: int
    failed: int


class BatchErrors(msgspec.Struct, frozen=True, kw_only=True):
    """The reasons why a batch failed."""

    data: list[LineError]
    object: Literal["list"] = "list"


class BatchUsage(msgspec.Struct, frozen=True):
    """Billed tokens of the responses so far."""

    input_tokens: int
    input_tokens_details: dict[str, int]
    output_tokens: int
    output_tokens_details: dict[str, int]
    total_tokens: int


class BatchObject(msgspec.Struct, frozen=True, kw_only=True):
    """A batch. Times are in seconds since 1970. The ids of its output and error files appear when it has ended."""

    id: str
    endpoint: str
    input_file_id: str
    status: BatchStatus
    created_at: int
    expires_at: int
    in_progress_at: int | None
    finalizing_at: int | None
    completed_at: int | None
    failed_at: int | None
    expired_at: int | None
    cancelling_at: int | None
    cancelled_at: int | None
    errors: BatchErrors | None
    output_file_id: str | None
    error_file_id: str | None
    request_counts: RequestCounts
    usage: BatchUsage
    model: str | None
    metadata: dict[str, str] | None
    completion_window: Literal["24h"] = "24h"
    object: Literal["batch"] = "batch"


class Listed(msgspec.Struct, Generic[ItemT], frozen=True, kw_only=True):
    """Part of a list. Send `last_id` as `after` for the next part."""

    data: list[ItemT]
    first_id: str | None
    last_id: str | None
    has_more: bool
    object: Literal["list"] = "list"


def file_object(row: Mapping[str, Any]) -> FileObject:
    """Convert a row of `files`."""
    return FileObject(
        id=row["id"],
        bytes=row["bytes"],
        created_at=_seconds(row["created_at"]) or 0,
        expires_at=_seconds(row["expires_at"]) or 0,
        filename=row["filename"],
        purpose=row["purpose"],
    )


def batch_object(row: Mapping[str, Any]) -> BatchObject:
    """Convert a row of `batches`."""
    status = BatchStatus(row["status"])
    ended = status not in UNFINISHED
    errors = json_of(row["errors"])
    moments = {name: _seconds(row[name]) for name in BatchObject.__struct_fields__ if name.endswith("_at")}
    if status in (BatchStatus.IN_PROGRESS, BatchStatus.FINALIZING):
        moments["expired_at"] = None  # it will expire, but only when its files are written
    return BatchObject(
        id=row["id"],
        endpoint=row["endpoint"],
        input_file_id=row["input_file_id"],
        status=status,
        **moments,  # type: ignore[arg-type]
        errors=None if errors is None else BatchErrors(data=msgspec.convert(errors, list[LineError])),
        output_file_id=row["output_file_id"] if ended and row["completed"] else None,
        error_file_id=row["error_file_id"] if ended and row["failed"] else None,
        request_counts=RequestCounts(row["total"], row["completed"], row["failed"]),
        usage=BatchUsage(
            row["prompt_tokens"],
            {"cached_tokens": row["cached_tokens"]},
            row["completion_tokens"],
            {"reasoning_tokens": row["reasoning_tokens"]},
            row["prompt_tokens"] + row["completion_tokens"],
        ),
        model=row["model"],
        metadata=json_of(row["metadata"]),
    )


def _seconds(moment: datetime | None) -> int | None:
    return None if moment is None else int(moment.timestamp())
