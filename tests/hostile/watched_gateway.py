"""`slipstream gateway` with a heartbeat on its event loop: `python -m tests.hostile.watched_gateway FILE gateway …`.

Every standstill of some milliseconds becomes a line of FILE. Counted is the wall time between two beats less the time
in which the loop's thread was ready to run and the kernel gave all cores to others (`/proc/thread-self/schedstat`).
What is left is a callback that did not end, or a thread that kept the interpreter to itself: the figure does not grow
with what else the machine does.
"""

from __future__ import annotations

import asyncio
import signal
import sys
import time
from pathlib import Path
from typing import Any

import gateway.main
from slipstream.__main__ import main

BEAT_S = 0.002
WORTH_TELLING_S = 0.010
_serve = gateway.main.serve


def runnable_s() -> float:
    """How long the calling thread has waited for a core so far."""
    return int(Path("/proc/thread-self/schedstat").read_bytes().split()[1]) / 1e9


async def beat(log: Path) -> None:
    """Until cancelled."""
    with log.open("a", buffering=1) as lines:
        while True:
            began_s, waited_s = time.monotonic(), runnable_s()
            await asyncio.sleep(BEAT_S)
            gap_s = time.monotonic() - began_s
            if gap_s > WORTH_TELLING_S:
                held_s = gap_s - BEAT_S - (runnable_s() - waited_s)
                lines.write(f"{gap_s} {held_s}\n")


def stand_still() -> None:
    """What a callback does that does not end: the seconds are in the file beside the log."""
    time.sleep(float(LOG.with_suffix(".pause").read_text()))


async def watched_serve(*arguments: Any) -> None:
    """`gateway.main.serve` beside a heartbeat."""
    asyncio.get_running_loop().add_signal_handler(signal.SIGUSR1, stand_still)
    heart = asyncio.create_task(beat(LOG))
    try:
        await _serve(*arguments)
    finally:
        heart.cancel()


if __name__ == "__main__":
    LOG = Path(sys.argv.pop(1))
    gateway.main.serve = watched_serve  # type: ignore[assignment]
    main()
