"""An upload is the same however its bytes arrive, and is refused as soon as it is too large."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st
from litestar import Request

from contracts.errors import BodyTooLarge, InvalidField, MissingField
from control.batches import upload
from control.batches.disk import Disk
from control.batches.routes import received_body
from control.batches.upload import Upload, read_upload
from gateway.http.client_connection import SCOPE_KEY
from tests.examples import examples

KIND = "multipart/form-data; boundary=line"
CONTENT = b'{"a": 1}\r\n--lin\r\n{"b": 2}\n'


def form(**parts: bytes) -> bytes:
    named = {name.replace("__", "[") + ("]" if "__" in name else ""): value for name, value in parts.items()}
    return b"".join(
        b'--line\r\nContent-Disposition: form-data; name="%s"%s\r\n\r\n%s\r\n'
        % (name.encode(), b'; filename="in.jsonl"' if name == "file" else b"", value)
        for name, value in named.items()
    ) + b"--line--\r\n"  # fmt: skip


async def in_chunks(body: bytes, cuts: list[int]) -> AsyncIterator[bytes]:
    at = 0
    for cut in [*sorted(cut for cut in cuts if cut < len(body)), len(body)]:
        yield body[at:cut]
        at = cut


async def read(path: Path, body: bytes, cuts: list[int] | None = None, kind: str = KIND) -> Upload:
    return await read_upload(kind, in_chunks(body, cuts or []), path, Disk())


@given(st.lists(st.integers(1, 600), max_size=8))
@examples(400, gate=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
async def test_chunks_do_not_matter(tmp_path: Path, cuts: list[int]) -> None:
    body = form(purpose=b"batch", file=CONTENT, expires_after__anchor=b"created_at", expires_after__seconds=b"3600")
    found = await read(tmp_path / "draft", body, cuts)
    assert (found.filename, found.size_bytes, found.kept_s) == ("in.jsonl", len(CONTENT), 3_600)
    assert (tmp_path / "draft").read_bytes() == CONTENT


@pytest.mark.parametrize(
    ("body", "error"),
    [
        (form(file=CONTENT), MissingField),
        (form(purpose=b"batch"), MissingField),
        (form(purpose=b"vision", file=CONTENT), InvalidField),
        (form(purpose=b"batch", file=b""), InvalidField),
        (form(purpose=b"b" * 2_000, file=CONTENT), InvalidField),
        (form(purpose=b"batch", file=CONTENT, expires_after__seconds=b"3600"), MissingField),
        (form(purpose=b"batch", file=CONTENT)[:-9], InvalidField),
        (b"nothing", InvalidField),
    ],
)
async def test_forms_that_are_refused(tmp_path: Path, body: bytes, error: type[Exception]) -> None:
    with pytest.raises(error):
        await read(tmp_path / "draft", body)


async def test_another_kind_of_body_and_a_file_that_is_too_large(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(InvalidField, match="application/json"):
        await read(tmp_path / "draft", b"{}", kind="application/json")
    with pytest.raises(InvalidField, match="cannot be read"):
        await read(tmp_path / "draft", b"x", kind='multipart/form-data; boundary=""')
    monkeypatch.setattr(upload, "FILE_BYTES", 1_000)
    taken = 0

    async def endless() -> AsyncIterator[bytes]:
        nonlocal taken
        yield form(purpose=b"batch", file=b"")[:-11]
        while True:
            taken += 500
            yield b"x" * 500

    with pytest.raises(BodyTooLarge):
        await read_upload(KIND, endless(), tmp_path / "draft", Disk())
    assert taken < 2_000


async def test_a_client_that_leaves_during_an_upload_is_no_internal_error() -> None:
    """Fault: each wrote a traceback to the log, and counted as a failure of the gateway."""
    arriving: list[dict[str, object]] = [
        {"type": "http.request", "body": form(file=CONTENT)[:40], "more_body": True},
        {"type": "http.disconnect"},
    ]

    async def receive() -> dict[str, object]:
        return arriving.pop(0)

    route = Mock(resolve_request_max_body_size=lambda: 1_000)
    scope: Any = {"type": "http", "headers": [], "route_handler": route, SCOPE_KEY: None}
    request: Request[Any, Any, Any] = Request(scope, receive=receive)  # type: ignore[arg-type]
    with pytest.raises(InvalidField, match="ended before its body was complete"):
        async for _ in received_body(request):
            pass
