"""Everything goes wrong at once, in real processes: the router, the engines and a gateway are killed and stopped while
requests run. What must come out of it: no lease leaks, queues drain, nobody is served after his deadline, and what is
refused is refused by name."""

from __future__ import annotations

import asyncio
import contextlib
import random
import signal
import sys
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from contracts.desired_state import DesiredState, Model, Pool, Replica
from contracts.errors import NoEngine, Overloaded, RouterUnavailable, SlipstreamError
from contracts.generation import Caller, ChatPrompt, Generation, Sampling, Tier
from contracts.lease import Lease, LeaseEnd
from contracts.proto import control_pb2 as pb
from contracts.usage import Finish, Usage
from engines.drivers import registry as drivers
from engines.http.engine_connections import EngineConnections
from engines.http.keys import OneKey
from router.client import RouterClient
from router.config import RouterConfig
from router.control.client import ControlClient
from tests.deployment import free_port
from tests.fakes.process import FakeEngineProcess, fake_engine
from tests.router.fakes import GUARD_S, TOKEN, Connect, ask
from tests.router.test_process import run
from tests.waiting import eventually

DEADLINE_S = 1.0
ANSWER_S = 1.0
"""A gateway gives up on an engine that has said nothing for so long."""
ASKING = 12
DRIVER = drivers.get("sglang")
LOSES_ITS_REPORTS = """
import asyncio, sys
from contracts.errors import SlipstreamError
from router.client import RouterClient
from router.client_config import RouterClientConfig
from tests.router.fakes import TOKEN, ask

async def main():
    client = RouterClient(RouterClientConfig(address=sys.argv[1]), TOKEN, "gateway-that-dies")
    await client.start()
    assert await client.wait_connected(60)
    held = asked = 0
    while held < 4:
        asked += 1
        try:
            await client.acquire(ask(f"lost-{asked}-{sys.argv[2]}"))
            held += 1
        except SlipstreamError:  # the others ask for more than three engines have
            await asyncio.sleep(0.01)
    print("holds", flush=True)
    await asyncio.Event().wait()

asyncio.run(main())
"""
"""A gateway that holds leases of which nothing will ever be reported."""


class Chaos:
    """Three engines, one of them ten times slower, a router and those who ask; each harm is one method."""

    def __init__(self, engines: list[FakeEngineProcess], stack: contextlib.AsyncExitStack, connect: Connect) -> None:
        self.engines = engines
        self.stack = stack
        self.connect = connect
        self.config = RouterConfig(
            control_port=free_port(),
            port=free_port(),
            poll_interval_s=0.1,
            recovery_interval_s=0.05,
            probe_timeout_s=0.3,
            grace_s=0.5,
        )
        self.outcomes: Counter[str] = Counter()
        self.late: list[Lease] = []
        self.over = False
        self.answer_s = ANSWER_S
        self.client: RouterClient
        self._connections = EngineConnections(OneKey("secret"))
        self._numbers = iter(range(1_000_000))

    async def start(self) -> None:
        self.router = await run(self.config)
        self.client = await self.connect(self.config.port, patience_s=0.5, answer_margin_s=1.0, connect_timeout_s=2.0)
        replicas = tuple(Replica(f"r{number}", engine.url) for number, engine in enumerate(self.engines))
        pool = Pool("pool", "sglang", replicas, max_concurrency=2)
        self.client.publish(DesiredState(1, (Model("m", Tier.CHAT, "pool", 2_048, engine_model="fake"),), (pool,)))

    async def keep_asking(self) -> None:
        """One gateway task: asks, has it answered, reports; until it is over."""
        while not self.over:
            await self.request()

    async def request(self, deadline_s: float = DEADLINE_S) -> bool:
        """Whether it was answered."""
        name = f"l{next(self._numbers)}"
        try:
            # the guard is for hanging for ever; that nobody is late is read off the router's own clock
            lease = await asyncio.wait_for(self.client.acquire(ask(name, deadline_s=deadline_s)), 2 * GUARD_S)
        except (Overloaded, NoEngine, RouterUnavailable) as refused:
            self.outcomes[type(refused).__name__] += 1
            await asyncio.sleep(0.01)
            return False
        if lease.queued_s > deadline_s:
            self.late.append(lease)
        end = await self._answered(lease)
        self.client.release(end)
        self.outcomes["answered" if end.finish is Finish.COMPLETE else "engine failed"] += 1
        return end.finish is Finish.COMPLETE

    async def _answered(self, lease: Lease) -> LeaseEnd:
        generation = Generation(
            f"req_{lease.lease_id}", Caller("o", "p", "k"), Tier.CHAT, "m",
            ChatPrompt(({"role": "user", "content": "hi"},)), Sampling(4),
        )  # fmt: skip
        try:
            async with asyncio.timeout(self.answer_s):
                stream = await self._connections.open(lease.engine.url, DRIVER.generate(generation, "fake"))
                first = True
                while await stream.read():
                    if first:
                        self.client.first_token(lease.lease_id, 0.01, 0)
                    first = False
        except (TimeoutError, SlipstreamError):
            return LeaseEnd(lease.lease_id, Finish.ENGINE_ERROR, engine_fault=True)
        return LeaseEnd(lease.lease_id, Finish.COMPLETE, Usage(10, 4))

    # harms

    async def router_killed(self) -> None:
        self.router.kill()
        await self.router.wait()
        self.router = await run(self.config)

    async def router_stands_still(self) -> None:
        """For longer than anyone may wait: its clock jumps."""
        self.router.send_signal(signal.SIGSTOP)
        await asyncio.sleep(DEADLINE_S + 0.2)
        self.router.send_signal(signal.SIGCONT)

    async def engine_killed(self) -> None:
        engine = self.engines[0]
        engine.kill()
        await engine.process.wait()
        # another process takes its place
        self.engines[0] = await self.stack.enter_async_context(fake_engine(port=engine.port))

    async def engine_hangs(self) -> None:
        """It accepts and never answers, until somebody has noticed: a request of its own, or a poll."""
        failed = self.outcomes["engine failed"]
        self.engines[1].process.send_signal(signal.SIGSTOP)
        await self.until_told(
            lambda fleet: (
                self.outcomes["engine failed"] > failed
                or any(one.id == "r1" and one.health != "healthy" for pool in fleet.pools for one in pool.replicas)
            )
        )
        self.engines[1].process.send_signal(signal.SIGCONT)

    async def gateway_killed(self) -> None:
        """With leases of which nobody will ever hear again."""
        died = await asyncio.create_subprocess_exec(
            sys.executable, "-c", LOSES_ITS_REPORTS, f"127.0.0.1:{self.config.port}", str(next(self._numbers)),
            stdout=asyncio.subprocess.PIPE, cwd="/", env=_environment(),
        )  # fmt: skip
        assert died.stdout is not None
        # each of its four leases may wait for as long as a request may, while two of three engines are away
        assert await asyncio.wait_for(died.stdout.readline(), 4 * GUARD_S) == b"holds\n", "it holds what it will lose"
        died.kill()
        await died.wait()

    # afterwards

    async def fleet(self) -> pb.Fleet | None:
        """As the router tells it; None: it does not, at the moment."""
        with ControlClient(f"127.0.0.1:{self.config.control_port}", TOKEN) as control:
            try:
                return await asyncio.to_thread(control.fleet)
            except RouterUnavailable:
                return None

    async def until_told(self, what: Callable[[pb.Fleet], bool]) -> None:
        last: pb.Fleet | None = None

        async def told() -> bool:
            nonlocal last
            last = await self.fleet()
            return last is not None and what(last)

        try:
            await eventually(told)
        except AssertionError:
            raise AssertionError(f"the router still says:\n{last}") from None


def _environment() -> dict[str, str]:
    return {"PYTHONPATH": ":".join(path for path in sys.path if path)}


@pytest.fixture
async def chaos(connect: Connect) -> AsyncIterator[Chaos]:
    async with contextlib.AsyncExitStack() as stack:
        engines = [await stack.enter_async_context(fake_engine(port=free_port())) for _ in range(3)]
        for engine, slower in zip(engines, (1, 1, 10), strict=True):
            await engine.control(ttft_s=0.02 * slower, inter_token_s=0.005 * slower)
        made = Chaos(engines, stack, connect)
        await made.start()
        yield made
        # a test that failed left its askers running, and wait_for may swallow the loop's cancel
        made.over = True
        if made.router.returncode is None:
            made.router.kill()
        await made.router.wait()


async def harmed(chaos: Chaos, rounds: int) -> None:
    await chaos.until_told(
        lambda fleet: [one.health for pool in fleet.pools for one in pool.replicas] == ["healthy"] * 3
    )
    asking = [asyncio.create_task(chaos.keep_asking()) for _ in range(ASKING)]
    harms: list[Callable[[], Awaitable[None]]] = [
        chaos.router_killed, chaos.router_stands_still, chaos.engine_killed, chaos.engine_hangs,
    ]  # fmt: skip
    dice = random.Random(rounds)
    for _ in range(rounds):
        dice.shuffle(harms)
        # last: a router that begins anew would know nothing of the leases it left
        for harm in (*harms, chaos.gateway_killed):
            answered = chaos.outcomes["answered"]
            await harm()
            # the next one hits a fleet that serves again
            await eventually(lambda answered=answered: chaos.outcomes["answered"] >= answered + ASKING)  # type: ignore[misc]
    chaos.over = True
    await asyncio.wait_for(asyncio.gather(*asking), GUARD_S)
    assert not chaos.late, "granted after its deadline"
    # whether anybody was told so depends on how soon the next router is there
    assert chaos.client.connections > rounds, "the router was lost, and found again"
    await chaos.until_told(
        lambda fleet: all(
            pool.queued == 0
            and all(one.health == "healthy" and one.leases == 0 and one.prefill_tokens == 0 for one in pool.replicas)
            for pool in fleet.pools
        )
    )
    chaos.answer_s = GUARD_S
    for _ in range(20):  # a poll that a busy machine has held up for a moment takes an engine out, and back
        await eventually(lambda: chaos.request(GUARD_S))


async def test_whatever_dies_or_hangs_no_lease_leaks_and_nobody_waits_for_ever(chaos: Chaos) -> None:
    await harmed(chaos, rounds=1)


@pytest.mark.nightly
@pytest.mark.timeout(900)
async def test_it_stays_so_for_a_long_time(chaos: Chaos) -> None:
    await harmed(chaos, rounds=20)
