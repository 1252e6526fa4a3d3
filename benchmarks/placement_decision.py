"""What one placement decision costs: 10 replicas and 1,000, short prompts and 128k tokens, beside a linear scan.

    python -m benchmarks.placement_decision

The rival is the naive twin in the same process: every replica keeps a set of block hashes, and every decision walks
the prompt's blocks on every replica; and our own cost looked at for every free replica instead of a few. CPU time,
median of many decisions, on fleets whose caches are full of shared prefixes.
Then the memory of a prefix index of one million blocks, in conversations and in the worst case (prompts of one block).
The last line is JSON.
"""

from __future__ import annotations

import os
import random
import statistics
import subprocess
import sys
import time

import msgspec

from contracts.desired_state import DesiredState, Model, Pool, Replica
from contracts.generation import Tier
from contracts.lease import LeaseEnd, LeaseRequest
from contracts.prefix import block_hashes
from contracts.usage import Finish, Usage
from router.config import RouterConfig
from router.core.dispatcher import Dispatcher
from router.core.events import Acquire, FirstToken, GatewayConnected, Release, ReplicaPolled, StatePublished
from router.core.prefix_index import PrefixIndex
from router.policies import prefix, registry

TOKENS_PER_BLOCK = 64
DECISIONS = 300
MILLION = 1_000_000


def chain(dice: random.Random, blocks: int, stem: bytes = b"") -> bytes:
    """The hashes of `blocks` blocks, beginning with a shared stem."""
    own = blocks - len(stem) // 16
    return stem[: blocks * 16] + dice.randbytes(16 * max(own, 0))


class Fleet:
    """The router's core with this many replicas, warmed up."""

    def __init__(self, replicas: int, policy: str = "prefix") -> None:
        self.dice = random.Random(1)
        self.core = Dispatcher(RouterConfig(explain_records=5_000), registry.create(policy))
        self.now = 0.0
        self.number = 0
        names = [f"r{number}" for number in range(replicas)]
        wanted = tuple(Replica(name, f"http://{name}") for name in names)
        state = DesiredState(1, (Model("m", Tier.CHAT, "p", 1 << 20),), (Pool("p", "sglang", wanted, 64),))
        self.core.handle(GatewayConnected(1, "g", "e"), 0.0)
        self.core.handle(StatePublished(state), 0.0)
        for name in names:
            self.core.handle(ReplicaPolled(name, True), 0.0)
        self.stems = [chain(self.dice, 120) for _ in range(50)]
        self.sets: dict[str, set[bytes]] = {name: set() for name in names}
        """The block hashes that the naive twin keeps, by replica."""
        for _ in range(max(400, 3 * replicas)):
            self.turn(chain(self.dice, self.dice.randrange(20, 200), self.dice.choice(self.stems)))

    def turn(self, hashes: bytes) -> tuple[float, float]:
        """Run one request from its ask to its release; returns the CPU seconds of the ask, and of all steps."""
        self.number += 1
        self.now += 0.01
        tokens = max(1, len(hashes) // 16 * TOKENS_PER_BLOCK)
        lease_id = f"l{self.number}"
        ask = LeaseRequest(lease_id, lease_id, 0, Tier.CHAT, "m", tokens, 500, 60.0, "o", "bytes", hashes)
        began = time.process_time()
        (decision,) = self.core.handle(Acquire(1, ask), self.now)
        asked = time.process_time()
        self.core.next_wakeup()
        self.core.handle(FirstToken(1, lease_id, 0.01 + tokens * 1e-5, 0), self.now + 0.001)
        self.core.handle(Release(1, LeaseEnd(lease_id, Finish.COMPLETE, Usage(tokens, 100, 0))), self.now + 0.002)
        self.core.next_wakeup()
        ended = time.process_time()
        where = self.sets[decision.lease.engine.replica_id]  # type: ignore[union-attr]
        where.update(block_hashes(hashes))
        return asked - began, ended - began

    def scan(self, hashes: bytes) -> float:
        """Make the naive twin's decision, the longest prefix over all replicas; returns its CPU seconds."""
        began = time.process_time()
        blocks = block_hashes(hashes)
        best, longest = "", -1
        for name, known in self.sets.items():
            count = 0
            for block in blocks:
                if block not in known:
                    break
                count += 1
            if count > longest:
                best, longest = name, count
        assert best
        return time.process_time() - began


def decisions(fleet: Fleet, blocks: int) -> dict[str, float]:
    """The median microseconds of our ask, of our ask + first token + release, and of the linear scan."""
    asked, whole, scanned = [], [], []
    for _ in range(DECISIONS):
        stem = fleet.dice.choice(fleet.stems)
        hashes = chain(fleet.dice, blocks, stem if blocks <= 200 else long_prompts(fleet))
        scanned.append(fleet.scan(hashes))
        one, all_ = fleet.turn(hashes)
        asked.append(one)
        whole.append(all_)
    return {
        "ask_us": 1e6 * statistics.median(asked),
        "lease_us": 1e6 * statistics.median(whole),
        "scan_us": 1e6 * statistics.median(scanned),
    }


def long_prompts(fleet: Fleet) -> bytes:
    """The stem of a prompt of 128k tokens of which all but the end is cached."""
    if len(fleet.stems) == 50:
        fleet.stems.append(chain(fleet.dice, 1_900))
        for _ in range(12):  # on several replicas, like hot documents
            fleet.turn(chain(fleet.dice, 2_000, fleet.stems[50]))
    return fleet.stems[50]


def rss_bytes() -> int:
    """The resident memory of this process."""
    with open("/proc/self/statm") as file:  # noqa: PTH123
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def index_memory(shape: str) -> dict[str, float]:
    """Measure an index of a million blocks on a hundred replicas."""
    dice = random.Random(2)
    index = PrefixIndex(MILLION)
    before = rss_bytes()
    began = time.process_time()
    prompts = 0
    if shape == "conversations":
        stems = [chain(dice, 30) for _ in range(200)]
        while index.blocks < MILLION * 0.99:
            turns = chain(dice, 60, dice.choice(stems))
            slot = dice.randrange(100)
            for _ in range(4):
                turns += dice.randbytes(16 * dice.randrange(4, 20))
                index.hold(slot, index.match(turns))
                prompts += 1
    else:
        while index.blocks < MILLION * 0.99:
            index.hold(dice.randrange(100), index.match(dice.randbytes(16)))
            prompts += 1
    return {"megabytes": (rss_bytes() - before) / 1e6, "us_per_prompt": 1e6 * (time.process_time() - began) / prompts}


def main() -> None:
    """Print a table and one JSON line."""
    if len(sys.argv) > 1:
        print(msgspec.json.encode(index_memory(sys.argv[1])).decode())
        return
    result: dict[str, object] = {}
    print("CPU time of one decision, µs (median)      ask    ask+first token+release    linear scan")
    for replicas in (10, 1_000):
        fleet = Fleet(replicas)
        for label, blocks in (("4k tokens", 64), ("128k tokens", 2_000)):
            found = decisions(fleet, blocks)
            result[f"{replicas} replicas, {label}"] = found
            print(
                f"  {replicas:>5} replicas, {label:<12} {found['ask_us']:>18.1f} {found['lease_us']:>22.1f} "
                f"{found['scan_us']:>18.1f}"
            )
    prefix.EXHAUSTIVE = MILLION
    every = decisions(Fleet(1_000), 2_000)
    result["1000 replicas, 128k tokens, all looked at"] = every
    print(f"  {1_000:>5} replicas, {'all looked at':<13}{every['ask_us']:>18.1f} {every['lease_us']:>22.1f}")
    plain = decisions(Fleet(10, "least_load"), 64)
    result["10 replicas, 4k tokens, least_load"] = plain
    print(f"  {10:>5} replicas, {'least_load':<12} {plain['ask_us']:>18.1f} {plain['lease_us']:>22.1f}")
    print("memory of one million blocks (resident, in a process of its own)")
    for shape in ("conversations", "single blocks"):
        command = [sys.executable, "-m", "benchmarks.placement_decision", shape]
        memory = msgspec.json.decode(subprocess.run(command, check=True, capture_output=True).stdout)
        result[f"index of {shape}"] = memory
        print(f"  {shape:<20} {memory['megabytes']:>8.0f} MB {memory['us_per_prompt']:>8.1f} µs per prompt")
    print(msgspec.json.encode(result).decode())


if __name__ == "__main__":
    main()
