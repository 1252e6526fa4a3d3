"""A real gateway process over the session's PostgreSQL and Valkey, without router and engines: administration needs
neither.
"""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import msgspec

from contracts.desired_state import Model, Pool, Replica
from contracts.generation import Tier
from infra.local.folders import DataFolder
from tests.deployment import free_port, plain_environment
from tests.processes import answers, module_process
from tests.temporary import short_folder

MODELS = [Model("wide", Tier.CHAT, "one", 4_096, aliases=("broad",)), Model("narrow", Tier.AUTOCOMPLETE, "one", 4_096)]
POOLS = [Pool("one", "sglang", (Replica("one-0", "http://127.0.0.1:9"),), max_adapters=4)]
"""Nobody answers there, and nobody asks."""


class LoneGateway(msgspec.Struct, frozen=True):
    url: str
    pepper: bytes
    data: Path


@contextlib.asynccontextmanager
async def lone_gateway(
    database_url: str,
    valkey_url: str,
    *,
    pepper: bytes | None = None,
    descriptors: int = 0,
    port: int = 0,
    program: str = "tests.control.api.at_once",
    **settings: str,
) -> AsyncIterator[LoneGateway]:
    """Started and serving. descriptors: its hard limit of open files, when not 0. port: 0: a free one. program: a
    module that takes the arguments of `slipstream`. settings: more environment."""
    folder = short_folder()
    data = DataFolder(folder / "d")
    data.prepare()
    if pepper is not None:
        data.pepper_file.write_bytes(pepper)
        data.pepper_file.chmod(0o600)
    port = port or free_port()
    environment = {
        **plain_environment(),
        "SLIPSTREAM_LOCAL__DATABASE_URL": database_url,
        "SLIPSTREAM_LOCAL__VALKEY_URL": valkey_url,
        "SLIPSTREAM_GATEWAY__PORT": str(port),
        "SLIPSTREAM_GATEWAY__ROUTER__ADDRESS": f"127.0.0.1:{free_port()}",
        "SLIPSTREAM_GATEWAY__LIMITS__KEY_PREFIX": folder.name,
        "SLIPSTREAM_GATEWAY__TRACE_FLUSH_S": "0.05",
        "SLIPSTREAM_GATEWAY__ADMIN__ORGANIZATION_WRITES_PER_SECOND": "10000",  # a file's tests share two tenants
        "SLIPSTREAM_MODELS": msgspec.json.encode(MODELS).decode(),
        "SLIPSTREAM_POOLS": msgspec.json.encode(POOLS).decode(),
        **settings,
    }
    url = f"http://127.0.0.1:{port}"
    try:
        async with (
            module_process(
                program, "gateway", "--data", str(data.path),
                environment=environment, descriptors=descriptors,
            ) as process,
            aiohttp.ClientSession() as session,
        ):  # fmt: skip
            await answers(session, f"{url}/healthz", process)
            yield LoneGateway(url, data.pepper_file.read_text().strip().encode(), data.path)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
