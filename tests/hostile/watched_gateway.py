"""`slipstream gateway` with a heartbeat on its event loop: `python -m tests.hostile.watched_gateway FILE gateway …`.

Every standstill of some milliseconds becomes a line of FILE. It counts the wall time between two beats less the time in
which the loop's thread was ready to run and the kernel gave all cores to others (`/proc/thread-self/schedstat`), and
never more than the CPU time of the whole process. What is left is a callback that computed, or a thread that kept the
interpreter to itself: the figure does not grow with what else the machine does.
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
            began_s, waited_s, used_s = time.monotonic(), runnable_s(), time.process_time()
            await asyncio.sleep(BEAT_S)
            gap_s = time.monotonic() - began_s
            if gap_s > WORTH_TELLING_S:
                held_s = min(gap_s - BEAT_S - (runnable_s() - waited_s), time.process_time() - used_s)
                lines.write(f"{gap_s} {held_s}\n")


def stand_still() -> None:
    """Compute for the seconds of CPU time in the file beside the log, as a callback does that does not end."""
    ends_s = time.thread_time() + float(LOG.with_suffix(".pause").read_text())
    while time.thread_time() < ends_s:
        pass


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
