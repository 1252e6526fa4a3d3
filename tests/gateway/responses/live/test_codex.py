"""Codex CLI itself against a gateway: a turn with a command that it runs, and one that resumes it."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.autocomplete.live.node import require_node
from tests.gateway.slow_platform import SlowPlatform

pytestmark = pytest.mark.nightly
GUARD_S = 120.0
PACKAGES = Path(__file__).parent / "node_modules"
CODEX = PACKAGES / "@openai" / "codex" / "bin" / "codex.js"
# the mark is whole only in the command's output, so that the engine's next answer follows the output
COMMAND = """echo 'mo''ck:{"tool":"","tokens":2,"texts":["All"," done"]}'"""
CONFIG = """
model = "wide"
model_provider = "slipstream"
web_search = "disabled"

[model_providers.slipstream]
name = "Slipstream"
base_url = "{url}/v1"
env_key = "SLIPSTREAM_API_KEY"
wire_api = "responses"
"""


@contextlib.asynccontextmanager
async def calling(platform: SlowPlatform) -> AsyncIterator[None]:
    """The model calls Codex's tool for commands."""
    arguments = msgspec.json.encode({"cmd": COMMAND}).decode()
    await platform.engine.control(tool="exec_command", texts=[arguments], tokens=1)
    try:
        yield
    finally:
        await platform.engine.control(tool="", texts=(), tokens=16)


async def codex(platform: SlowPlatform, home: Path, *arguments: str) -> list[dict[str, Any]]:
    """What a run of `codex exec` reports, one object for each event."""
    process = await asyncio.create_subprocess_exec(
        require_node(PACKAGES), str(CODEX), "exec", "--json", "--skip-git-repo-check",
        "--dangerously-bypass-approvals-and-sandbox", *arguments,
        cwd=home, stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
        env={**os.environ, "CODEX_HOME": str(home), "HOME": str(home), "SLIPSTREAM_API_KEY": platform.key},
    )  # fmt: skip
    try:
        async with asyncio.timeout(GUARD_S):
            output, errors = await process.communicate()
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
    assert process.returncode == 0, (output + errors).decode()
    return [msgspec.json.decode(line) for line in output.splitlines() if line.startswith(b"{")]


async def test_codex_runs_a_command_and_resumes(platform: SlowPlatform, tmp_path: Path) -> None:
    require_node(PACKAGES)
    (tmp_path / "config.toml").write_text(CONFIG.format(url=platform.url))
    async with calling(platform):
        events = await codex(platform, tmp_path, "Say hello.")
    items = [event["item"] for event in events if event["type"] == "item.completed"]
    [ran] = [item for item in items if item["type"] == "command_execution"]
    assert (ran["exit_code"], "mock:" in ran["aggregated_output"]) == (0, True)
    assert [item["text"] for item in items if item["type"] == "agent_message"] == ["All done"]
    assert events[-1]["type"] == "turn.completed"
    assert events[-1]["usage"]["output_tokens"] > 0
    again = await codex(platform, tmp_path, "resume", "--last", "And again.")
    assert [event["item"]["text"] for event in again if event.get("item", {}).get("type") == "agent_message"] == [
        "All done"
    ]
