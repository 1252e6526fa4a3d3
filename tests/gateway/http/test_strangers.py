"""What somebody without a key can do to a running gateway: not wait it out, not fill it, not make it read."""

from __future__ import annotations

import asyncio
import contextlib
import re
import resource
from uuid import UUID

import msgspec
import pytest

from contracts.errors import ConfigError
from control.operations import OPERATIONS
from gateway.http.config import ConnectionsConfig
from gateway.main import RESERVED_DESCRIPTORS, fitting
from slipstream.descriptors import raise_descriptor_limit
from tests.gateway.slow_platform import SlowPlatform
from tests.waiting import GUARD_S

INFERENCE = ("/v1/chat/completions", "/v1/completions")
ADMIN = tuple(
    "/admin/v1" + re.sub(r"{\w+}", str(UUID(int=0)), operation.path)
    for operation in OPERATIONS
    if operation.method == "POST"
)


def port_of(url: str) -> int:
    return int(url.rpartition(":")[2])


async def answer_to(port: int, head: str) -> tuple[int, str]:
    """Status and code of the answer to a request whose body never comes."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(head.encode())
        answer = await reader.readuntil(b"\r\n\r\n")
        length = next(line for line in answer.lower().split(b"\r\n") if line.startswith(b"content-length"))
        body = await reader.readexactly(int(length.split(b":")[1]))
        return int(answer.split()[1]), msgspec.json.decode(body)["error"]["code"]
    finally:
        await _end(writer)


async def _end(writer: asyncio.StreamWriter) -> None:
    writer.transport.abort()
    with contextlib.suppress(OSError):
        await writer.wait_closed()


@pytest.mark.parametrize("key", ["", "sk-slip-" + "0" * 38, "sk-slip-admin-" + "0" * 38])
async def test_the_key_is_looked_at_before_the_body_is_waited_for(platform: SlowPlatform, key: str) -> None:
    assert len(ADMIN) > 10
    authorization = f"Authorization: Bearer {key}\r\n" if key else ""
    async with asyncio.timeout(GUARD_S):
        for path in INFERENCE + ADMIN:
            head = (
                f"POST {path} HTTP/1.1\r\nHost: x\r\n{authorization}Content-Type: application/json\r\n"
                "Content-Length: 60000\r\n"
            )
            for expects in ("", "Expect: 100-continue\r\n"):
                status, code = await answer_to(port_of(platform.url), f"{head}{expects}\r\n")
                assert (status, code) in ((401, "missing_api_key"), (401, "invalid_api_key"), (401, "wrong_key_kind"))


def test_connections_fit_the_limit_of_open_files(caplog: pytest.LogCaptureFixture) -> None:
    config = ConnectionsConfig(max_connections=1_000)
    assert fitting(config, 2_000 + RESERVED_DESCRIPTORS) is config
    assert caplog.messages == []
    assert fitting(config, 1_024).max_connections == (1_024 - RESERVED_DESCRIPTORS) // 2
    assert "has room for 480" in caplog.messages[0]
    assert "to 2064" in caplog.messages[0]
    with pytest.raises(ConfigError, match="limit of open files is 65"):
        fitting(config, RESERVED_DESCRIPTORS + 1)


def test_the_soft_limit_of_open_files_is_raised_to_the_hard_one() -> None:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (before[0] - 1, before[1]))
        assert raise_descriptor_limit() == before[1]
        assert resource.getrlimit(resource.RLIMIT_NOFILE) == (before[1], before[1])
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


async def test_metrics_do_not_exist_on_the_public_port(platform: SlowPlatform) -> None:
    async with platform.session.get(f"{platform.url}/metrics") as response:
        assert response.status == 404
        assert "slipstream_" not in await response.text()
