"""What a gateway's request and token cost, against another commit's, both up at once and asked in turn.

`python -m benchmarks.gateway_in_turn CHECKOUT [--rounds 18] [--requests 400] [--streams 60]`, where CHECKOUT is a tree
of the other commit with a `.venv` that runs it. Client and fake engines are this tree's on both sides, so only what is
between them differs; what the machine does besides falls on both. CPU is each gateway process' own, by nanoseconds
from /proc/PID/task/*/schedstat. A token's cost is a stream's without its request's, of the same round. The last line is
JSON: this tree's cost over the other's, as the median of the rounds' ratios, with the bounds of its 95 % confidence
interval.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import signal
import statistics
import sys
import tempfile
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from types import MappingProxyType

import msgspec
import uvloop

from benchmarks.ample_limits import AMPLE_LIMITS
from benchmarks.gateway_overhead import SPACING_S, TOKEN, TOKENS, Client, closed_loop, paced
from benchmarks.needs import missing
from benchmarks.paired_ratio import compared
from benchmarks.processes import cpu_us, threads_us
from tests.deployment import fake_fleet, free_port, key_in, plain_environment
from tests.fakes.process import FakeEngineProcess, fake_engine
from tests.waiting import START_S

PROMPT = "Write a short poem about the sea and the wind, please."
WARM_UP = 800
HERE = Path(__file__).parents[1]


class Side:
    """One checkout's deployment."""

    def __init__(self, engine: FakeEngineProcess, pid: int, client: Client, servers: Mapping[str, int]) -> None:
        """pid: of the gateway. servers: the ids of all server processes by name."""
        self.engine = engine
        self.pid = pid
        self.client = client
        self.servers = servers
        self.request_us: list[float] = []
        self.token_us: list[float] = []

    def cpu_us(self) -> float:
        """The CPU time of the gateway so far, of all threads."""
        return cpu_us(self.pid)

    def thread_us(self, thread: int) -> float:
        """The CPU time of one of its threads so far."""
        return threads_us(self.pid)[thread]

    async def ask(self, requests: int) -> None:
        """Measure one-token streams, eight at a time."""
        await self.engine.control(ttft_s=0.0, inter_token_s=0.0, tokens=TOKENS)
        before = self.cpu_us()
        await closed_loop(self.client, requests, 8)
        self.request_us.append((self.cpu_us() - before) / requests)

    async def stream(self, streams: int) -> None:
        """Measure `streams` paced streams at once."""
        await self.engine.control(ttft_s=0.02, inter_token_s=SPACING_S, tokens=TOKENS)
        before = self.cpu_us()
        await paced(self.client, streams, 1)
        self.token_us.append(((self.cpu_us() - before) / streams - self.request_us[-1]) / TOKENS)


def python_of(checkout: Path) -> Path:
    """The interpreter that runs a working tree."""
    return Path(sys.executable) if checkout == HERE else checkout / ".venv" / "bin" / "python"


@contextlib.asynccontextmanager
async def side(checkout: Path, settings: Mapping[str, str] = MappingProxyType({})) -> AsyncIterator[Side]:
    """Run a deployment of that tree in front of a fake engine, with a key with limits. settings: environment variables
    of this side only."""
    python = str(python_of(checkout))
    async with contextlib.AsyncExitStack() as stack:
        engine = await stack.enter_async_context(fake_engine(token=TOKEN))
        data = stack.enter_context(tempfile.TemporaryDirectory(prefix="slip-up-", ignore_cleanup_errors=True))
        for name in ("token", "engine.metrics.token"):
            (Path(data) / name).write_text(TOKEN)
            (Path(data) / name).chmod(0o600)

        async def command(*arguments: str, **environment: str) -> asyncio.subprocess.Process:
            return await asyncio.create_subprocess_exec(
                python, "-m", "slipstream", *arguments, "--data", data, cwd=checkout,
                env=plain_environment() | environment, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
            )  # fmt: skip

        async def output(*arguments: str) -> str:
            process = await command(*arguments)
            text = (await process.communicate())[0].decode()
            if process.returncode:
                raise RuntimeError(f"{checkout}: slipstream {' '.join(arguments)}: {text}")
            return text

        port, log = free_port(), ""
        up = await command("up", "--port", str(port), **fake_fleet(engine.url), **settings)
        assert up.stdout is not None
        client: Client | None = None
        try:
            async with asyncio.timeout(START_S):
                while "Slipstream is up" not in log:
                    line = (await up.stdout.readline()).decode()
                    if not line:
                        raise RuntimeError(f"{checkout}: slipstream up ended: {log}")
                    log += line
            key = key_in(await output("keys", "create", *AMPLE_LIMITS))
            processes = msgspec.json.decode(await output("status", "--json"))["processes"]
            servers = {str(each["name"]): int(each["pid"]) for each in processes}
            client = Client(f"http://127.0.0.1:{port}", key, "fake", [PROMPT])
            yield Side(engine, servers["gateway-1"], client, servers)
        finally:
            if client is not None:
                await client.close()
            if up.returncode is None:
                up.send_signal(signal.SIGTERM)
            await up.wait()


async def main() -> None:
    """Parse, run, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("checkout", type=Path, help="a working tree of the other commit, with its .venv")
    parser.add_argument("--rounds", type=int, default=18)
    parser.add_argument("--requests", type=int, default=400)
    parser.add_argument("--streams", type=int, default=60)
    arguments = parser.parse_args()
    if not python_of(checkout := arguments.checkout.resolve()).is_file():
        missing(f"{python_of(checkout)} (make check, in that working tree, makes it)")
    async with side(checkout) as other, side(HERE) as ours:
        for each in (other, ours):
            await each.ask(WARM_UP)
            await each.stream(arguments.streams)
            each.request_us.clear()
            each.token_us.clear()
        for turn in range(arguments.rounds):
            sides = (other, ours) if turn % 2 else (ours, other)
            for each in sides:
                await each.ask(arguments.requests)
            for each in sides:
                await each.stream(arguments.streams)
    for name, theirs, mine in (
        ("request", other.request_us, ours.request_us),
        ("paced token", other.token_us, ours.token_us),
    ):
        spread = f"{min(theirs):.0f} to {max(theirs):.0f} us, {min(mine):.0f} to {max(mine):.0f} here"
        print(
            f"{name:<12} {statistics.median(theirs):8.1f} us there, {statistics.median(mine):8.1f} us here ({spread})"
        )
    request, token = compared(other.request_us, ours.request_us), compared(other.token_us, ours.token_us)
    line = {
        "request_ratio": request[0],
        "request_ratio_ci95": request[1:],
        "token_ratio": token[0],
        "token_ratio_ci95": token[1:],
        "rounds": arguments.rounds,
        "load": round(os.getloadavg()[0], 1),
    }
    print(msgspec.json.encode(line).decode())


if __name__ == "__main__":
    uvloop.run(main())
