"""What a prompt and its answer leave behind: nowhere any text, unless the organization wants it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit

import msgspec
from redis import Redis

from contracts.dated_request_id import mint
from tests.gateway.slow_platform import SlowPlatform
from tests.waiting import eventually


async def ask(platform: SlowPlatform, path: str, key: str, **body: Any) -> str:
    """The request's id, once its trace and its row of the ledger are there."""
    async with platform.session.post(
        platform.url + path, json=body, headers={"authorization": f"Bearer {key}", "user-agent": "llama.vim"}
    ) as response:
        answer = await response.read()
        assert response.status == 200, answer
        request_id = response.headers["x-request-id"]
    await platform.trace(request_id)
    await platform.charge(request_id)
    return request_id


def asks(text: str) -> list[tuple[str, dict[str, Any]]]:
    """Every endpoint that takes text."""
    gap = {"input_prefix": f"# {text}\n", "prompt": f"x = {text}", "input_suffix": f"\n# {text}", "n_predict": 8}
    return [
        ("/v1/chat/completions", {"model": "wide", "messages": [{"role": "user", "content": text}], "max_tokens": 8}),
        ("/v1/completions", {"model": "gaps", "prompt": text, "suffix": text, "max_tokens": 8, "user": text}),
        ("/v1/completions", {"model": "gaps", "prompt": text, "suffix": text, "max_tokens": 8, "stream": True}),
        ("/v1/fim/completions", {"model": "gaps", "prompt": text, "suffix": text, "max_tokens": 8}),
        ("/infill", {"model": "gaps", **gap}),
    ]


async def in_tables(platform: SlowPlatform, text: str) -> list[str]:
    """Tables in which a row has it."""
    database = platform.database
    names = await database.fetch(
        "SELECT relname FROM pg_class WHERE relnamespace = 'gateway'::regnamespace AND relkind IN ('r', 'p')"
        " AND NOT relispartition ORDER BY relname"  # the days of the ledger are read by their parent
    )
    assert len(names) > 15
    query = "SELECT count(*) FROM gateway.{name} AS row WHERE strpos(row::text, $1) > 0"
    return [row[0] for row in names if await database.fetchval(query.format(name=row[0]), text)]


def in_valkey(url: str, text: str) -> list[bytes]:
    """Names whose value, or which themselves, have it."""
    read: dict[bytes, Callable[[Any, bytes], Any]] = {
        b"string": Redis.get,
        b"hash": Redis.hgetall,
        b"set": Redis.smembers,
        b"zset": lambda client, name: client.zrange(name, 0, -1),
        b"list": lambda client, name: client.lrange(name, 0, -1),
        b"stream": Redis.xrange,
    }
    with Redis(unix_socket_path=urlsplit(url).path) as client:
        names = list(client.scan_iter(count=10_000))
        assert names
        return [name for name in names if text in repr((name, read[client.type(name)](client, name)))]


def in_files(platform: SlowPlatform, text: str) -> list[str]:
    """Files of the deployment, its journals among them."""
    paths = [path for path in platform.data.path.rglob("*") if path.is_file()]
    assert any("journal" in str(path) for path in paths)
    return [str(path) for path in paths if text.encode() in path.read_bytes()]


async def test_texts_are_stored_nowhere_until_their_organization_wants_it(
    platform: SlowPlatform, valkey_url: str
) -> None:
    key = await platform.add_key(new_organization=True)
    marker = f"geheim{mint()}"
    for path, body in asks(marker):
        await ask(platform, path, key.secret, **body)
    assert await in_tables(platform, marker) == []
    assert in_valkey(valkey_url, marker) == []
    assert in_files(platform, marker) == []

    organization = await platform.database.fetchval(
        "SELECT organization_id FROM gateway.projects JOIN gateway.api_keys ON project_id = projects.id"
        " WHERE hash = $1",
        key.hash,
    )
    assert "prompts are stored" in await platform.command(
        "customers", "organizations", "update", str(organization), "--store-prompts"
    )
    wanted = f"gewollt{mint()}"
    path, body = asks(wanted)[-1]

    async def stored() -> list[str]:
        await ask(platform, path, key.secret, **body)
        return await in_tables(platform, wanted)

    await eventually(stored)
    assert await in_tables(platform, wanted) == ["completion_texts"]
    row = await platform.database.fetchrow("SELECT * FROM gateway.completion_texts WHERE prefix LIKE $1", f"%{wanted}%")
    assert (row["prefix"], row["suffix"]) == (f"# {wanted}\nx = {wanted}", f"\n# {wanted}")
    assert row["completion"].startswith(" t0 t1")
    assert in_valkey(valkey_url, wanted) == []
    assert in_files(platform, wanted) == []
    assert "not stored" in await platform.command(
        "customers", "organizations", "update", str(organization), "--no-store-prompts"
    )
    assert await in_tables(platform, wanted) == []
    assert (
        msgspec.json.decode(
            await platform.database.fetchval(
                "SELECT after FROM gateway.audit_log WHERE action = 'organization.update' ORDER BY id DESC LIMIT 1"
            )
        )["store_prompts"]
        is False
    )
