"""Claude Code itself (npm `@anthropic-ai/claude-code`) runs a tool and answers, against a gateway."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.agents.installed import require_agent
from tests.deployment import plain_environment
from tests.gateway.slow_platform import SlowPlatform

GUARD_S = 100.0
QUIET = {"DISABLE_AUTOUPDATER": "1", "DISABLE_TELEMETRY": "1", "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1"}


@contextlib.asynccontextmanager
async def claude(
    command: str, platform: SlowPlatform, folder: Path, *arguments: str
) -> AsyncIterator[asyncio.subprocess.Process]:
    """Claude Code with this task, in an empty home and this folder. It is gone at the end."""
    home = folder / "home"
    home.mkdir()
    process = await asyncio.create_subprocess_exec(
        command, "-p", *arguments, "--output-format", "json", cwd=folder,
        env={
            **plain_environment(), **QUIET, "HOME": str(home), "ANTHROPIC_BASE_URL": platform.url,
            "ANTHROPIC_API_KEY": platform.key, "ANTHROPIC_MODEL": "wide",
        },
        stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
    )  # fmt: skip
    try:
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()


async def result_of(process: asyncio.subprocess.Process) -> dict[str, Any]:
    """What it printed at its end."""
    async with asyncio.timeout(GUARD_S):
        output, _ = await process.communicate()
    result = msgspec.json.decode(output)
    assert process.returncode == 0, result
    return dict(result)


@pytest.fixture(scope="session")
def command() -> str:
    """Path of its command: without it no platform starts."""
    return require_agent("claude")


async def test_it_runs_a_tool_and_answers(command: str, platform: SlowPlatform, tmp_path: Path) -> None:
    """The tool waits until the engine has its next script."""
    tool = "until [ -e go ]; do sleep 0.1; done; echo two birds"
    arguments = json.dumps({"command": tool, "description": "look"})
    engine = platform.engine
    ended = len(await engine.recorded())
    await engine.control(tool="Bash", texts=[arguments], tokens=1, prompt_tokens=20_000)
    try:
        async with claude(command, platform, tmp_path, "look", "--allowedTools", "Bash") as process:
            async with asyncio.timeout(GUARD_S):
                await engine.wait(ended=ended + 1)
            await engine.control(
                tool="", texts=["They are birds."], tokens=1, prompt_tokens=20_100, cached_tokens=20_000
            )
            (tmp_path / "go").touch()
            result = await result_of(process)
        *_, first, second = await engine.recorded()
    finally:
        await engine.control(reset=True)
    assert (result["result"], result["is_error"], result["num_turns"]) == ("They are birds.", False, 2)
    told = result["usage"]
    assert (told["input_tokens"], told["cache_read_input_tokens"], told["output_tokens"]) == (20_100, 20_000, 2)
    assert len(first["body"]["tools"]) >= 12
    assert second["body"]["messages"][-1] == {
        "role": "tool", "content": "two birds", "tool_call_id": "call_0",
    }  # fmt: skip
