"""A process that journals until it is killed and prints what it has been promised. Run by test_kill.py, with a
seed."""

from __future__ import annotations

import asyncio
import random
import sys
from pathlib import Path

from tests.gateway.metering.samples import closed, opened, placed, quick, start


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


async def _serve(path: Path, seed: str) -> None:
    journal = await start(path, quick(segment_bytes=8_192, lock_timeout_s=30))
    for left in journal.left_open:
        await journal.closed(closed(left.opened, tokens=1_000))
    _say("resolved")

    async def client(chance: random.Random) -> None:
        while True:
            record = opened()
            journal.opened(record)
            _say(f"opened {record.request_id}")
            if chance.random() < 0.9:
                journal.placed(placed(record))
                _say(f"placed {record.request_id}")
            await asyncio.sleep(0)
            if chance.random() < 0.9:
                await journal.closed(closed(record))
                _say(f"closed {record.request_id}")

    await asyncio.gather(*(client(random.Random(f"{seed} {number}")) for number in range(8)))


if __name__ == "__main__":
    asyncio.run(_serve(Path(sys.argv[1]), sys.argv[2]))
