"""Reads an upload (multipart/form-data) into a draft, chunk by chunk, so that no file is completely in memory."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, BinaryIO

import msgspec
from multipart import MultipartError, MultipartSegment, PushMultipartParser, parse_options_header

from contracts.errors import BodyTooLarge, InvalidField, MissingField
from control.batches.config import FILE_BYTES, KEPT_S
from control.batches.disk import Disk
from control.batches.objects import ExpiresAfter
from gateway.wire.decode import decode

FIELD_BYTES = 1_000
MAX_FIELDS = 10
FORM_BYTES = 100_000
"""Limit of all other parts of the form."""
FILENAME_CHARACTERS = 255
FIELDS = ("purpose", "expires_after[anchor]", "expires_after[seconds]")
_EXPIRES = msgspec.json.Decoder(ExpiresAfter)


class Upload(msgspec.Struct):
    """A file that was read into a draft."""

    filename: str
    size_bytes: int
    kept_s: int


async def read_upload(content_type: str, body: AsyncIterator[bytes], draft: Path, disk: Disk) -> Upload:
    """Read a whole form. body: the request's body, as it arrives. draft: receives the file's content. Raises
    RequestErrors, and OSError."""
    kind, options = parse_options_header(content_type)
    if kind != "multipart/form-data" or "boundary" not in options:
        raise InvalidField(
            f"Content-Type is {content_type[:100]!r}. Upload the file as multipart/form-data with a boundary.",
            param="Content-Type",
        )
    form, boundary = _Form(), options["boundary"]
    try:
        parser = PushMultipartParser(boundary, max_segment_size=FILE_BYTES + 1, max_segment_count=MAX_FIELDS)
        file: BinaryIO = await disk.do(draft.open, "wb")
        try:
            received_bytes = 0
            async for chunk in body:
                received_bytes += len(chunk)
                if received_bytes > FILE_BYTES + FORM_BYTES:
                    raise _too_large()
                if not chunk:
                    continue  # the parser would take it for the end
                # one at a time, to keep their order
                await disk.do(form.feed, list(parser.parse(chunk)), file)
            parser.close()
        finally:
            await disk.do(file.close)  # which waits for a write that hangs
    except MultipartError as error:
        raise InvalidField(
            f"The multipart form cannot be read: {error}. Upload it with an OpenAI SDK or `curl -F`.", param="file"
        ) from None
    return form.read()


def _too_large() -> BodyTooLarge:
    return BodyTooLarge(f"The file has more than {FILE_BYTES} bytes, the limit. Split it.", param="file")


class _Form:
    """The parts that have arrived."""

    def __init__(self) -> None:
        self._part: MultipartSegment | None = None
        self._fields: dict[str, bytes] = {}
        self._filename: str | None = None
        self._size_bytes = 0

    def feed(self, events: list[Any], file: BinaryIO) -> None:
        for event in events:
            if isinstance(event, MultipartSegment):
                self._begin(event)
            elif event is not None and event:
                self._add(event, file)

    def _begin(self, part: MultipartSegment) -> None:
        self._part = part
        if part.name == "file":
            if self._filename is not None:
                raise InvalidField("The form has more than one 'file'. Upload one file per request.", param="file")
            self._filename = part.filename or "file.jsonl"
        elif part.name in FIELDS:
            self._fields[part.name] = b""
        else:
            known = ", ".join(("file", *FIELDS))
            raise InvalidField(
                f"Unknown form field '{part.name[:100]}'. Allowed fields: {known}.", param=part.name[:100]
            )

    def _add(self, data: bytes | bytearray, file: BinaryIO) -> None:
        assert self._part is not None
        if self._part.name == "file":
            self._size_bytes += len(data)
            if self._size_bytes > FILE_BYTES:
                raise _too_large()
            file.write(data)
            return
        value = self._fields[self._part.name] = self._fields[self._part.name] + bytes(data)
        if len(value) > FIELD_BYTES:
            raise InvalidField(
                f"Invalid value for '{self._part.name}': it has more than {FIELD_BYTES} bytes.", param=self._part.name
            )

    def read(self) -> Upload:
        purpose = self._fields.get("purpose")
        if purpose is None:
            raise MissingField("Missing required parameter: 'purpose'.", param="purpose")
        if purpose != b"batch":
            shown = purpose[:100].decode(errors="replace")
            raise InvalidField(f"Invalid value for 'purpose': '{shown}'. It must be 'batch'.", param="purpose")
        if self._filename is None:
            raise MissingField("Missing required parameter: 'file'.", param="file")
        if not self._size_bytes:
            raise InvalidField("Invalid value for 'file': it is empty.", param="file")
        name = self._filename.replace("\0", "")[:FILENAME_CHARACTERS]
        return Upload(name.encode(errors="replace").decode(), self._size_bytes, self._kept_s())

    def _kept_s(self) -> int:
        present = {name: self._fields[name] for name in FIELDS[1:] if name in self._fields}
        if not present:
            return KEPT_S
        fields: dict[str, object] = {
            name.removeprefix("expires_after[").rstrip("]"): _number(value.decode(errors="replace"))
            for name, value in present.items()
        }
        return decode(_EXPIRES, msgspec.json.encode(fields), ExpiresAfter).seconds


def _number(text: str) -> object:
    return int(text) if text.isascii() and text.isdigit() else text
