"""Heads that two readers may understand differently are refused before their request is read."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.http.client_connection import SCOPE_KEY
from gateway.http.request_head import refusal_of
from tests.gateway.http.test_client_protocol import all_of, answer, one_answer, refused
from tests.gateway.served import on_uvloop, served

HOST = (b"host", b"x")
KEY = (b"authorization", b"Bearer a")
CHUNKED = (b"transfer-encoding", b"chunked")


@pytest.mark.parametrize(
    ("version", "headers", "code"),
    [
        ("1.1", [HOST], None),
        ("1.0", [], None),
        ("1.0", [HOST, KEY], None),
        ("1.1", [HOST, KEY, (b"x-api-key", b"b"), CHUNKED], None),
        ("1.1", [HOST, (b"transfer-encoding", b" Chunked ")], None),
        ("1.1", [HOST, (b"accept", b"a"), (b"accept", b"b"), (b"cookie", b"a"), (b"cookie", b"b")], None),
        ("1.1", [], "invalid_request"),
        ("1.1", [KEY], "invalid_request"),
        ("1.1", [HOST, HOST], "invalid_request"),
        ("1.0", [HOST, (b"host", b"y")], "invalid_request"),
        ("1.1", [HOST, KEY, (b"authorization", b"Bearer b")], "invalid_request"),
        ("1.1", [HOST, KEY, KEY], "invalid_request"),
        ("1.1", [HOST, (b"x-api-key", b"a"), (b"x-api-key", b"b")], "invalid_request"),
        ("0.9", [], "invalid_request"),
        ("0.9", [HOST], "invalid_request"),
        ("2.0", [HOST], "invalid_request"),
        ("1.1", [HOST, (b"transfer-encoding", b"gzip, chunked")], "transfer_coding_unsupported"),
        ("1.1", [HOST, (b"transfer-encoding", b"")], "transfer_coding_unsupported"),
        ("1.1", [HOST, CHUNKED, CHUNKED], "invalid_request"),
        ("1.0", [(b"transfer-encoding", b"gzip")], "transfer_coding_unsupported"),
        ("1.1", [HOST, (b"a", b"x" * 1_000)], "request_headers_too_large"),
    ],
)
def test_which_heads_are_refused(version: str, headers: list[tuple[bytes, bytes]], code: str | None) -> None:
    refusal = refusal_of(version, b"/", headers, 1_024)
    assert (refusal and refusal.code) == code


async def says_ok(scope: Any, receive: Any, send: Any) -> None:
    answer(scope[SCOPE_KEY], b"ok")


@pytest.mark.parametrize(
    ("sent", "told"),
    [
        (b"GET /\r\n\r\n", (400, "invalid_request")),
        (b"GET / HTTP/1.1\r\nhost: x\r\nauthorization: a\r\nAuthorization: b\r\n\r\n", (400, "invalid_request")),
        (
            b"POST / HTTP/1.1\r\nhost: x\r\ntransfer-encoding: gzip, chunked\r\n\r\n1\r\na\r\n0\r\n\r\n",
            (501, "transfer_coding_unsupported"),
        ),
        (
            b"POST / HTTP/1.1\r\nhost: x\r\ntransfer-encoding:\r\ncontent-length: 3\r\n\r\nabc",
            (501, "transfer_coding_unsupported"),
        ),
    ],
)
@on_uvloop
async def test_they_are_answered_and_closed(sent: bytes, told: tuple[int, str]) -> None:
    async with served(says_ok) as server:
        assert refused(await all_of(await server.connect(sent))) == told
        assert server.malformed == {told[1]: 1}
        await server.holds(0)


@on_uvloop
async def test_a_client_of_http_1_0_needs_no_host() -> None:
    async with served(says_ok) as server:
        assert await one_answer(await server.connect(b"GET / HTTP/1.0\r\n\r\n")) == (200, b"ok")
