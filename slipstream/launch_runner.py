"""Starts the engines of other projects in parallel with everything else: they take minutes, and one that cannot start
stops nothing."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence

from contracts.errors import ConfigError
from infra.local.child import Child
from infra.local.supervisor import Supervisor
from slipstream.engine_log import last_line
from slipstream.launch_plan import LocalLaunch
from slipstream.processes import Processes
from slipstream.progress import Progress

PROGRESS_INTERVAL_S = 15.0


class LaunchedEngines:
    """The engines of one `up`. progress_interval_s: seconds between two lines of progress."""

    def __init__(
        self,
        engines: Sequence[LocalLaunch],
        supervisor: Supervisor,
        processes: Processes,
        progress: Progress,
        progress_interval_s: float = PROGRESS_INTERVAL_S,
    ) -> None:
        self._engines = engines
        self._supervisor = supervisor
        self._processes = processes
        self._progress = progress
        self._progress_interval_s = progress_interval_s

    async def start(self) -> None:
        """Start all engines. Return once each serves, or has been given up with a warning."""
        await asyncio.gather(*map(self._start, self._engines))

    async def _start(self, engine: LocalLaunch) -> None:
        child = self._supervisor.add(self._processes.launched(engine))
        reporting = asyncio.create_task(self._report_progress(child), name=f"progress of {engine.name}")
        try:
            await self._progress.step(engine.name, "ready", child.ready(), lambda: child.cpu_s)
        except ConfigError as error:
            if not engine.unavailable_reason:  # already printed at the start
                self._progress.say(f"warning: {error}; the rest serves without it")
        finally:
            reporting.cancel()

    async def _report_progress(self, child: Child) -> None:
        started_at = time.monotonic()
        while True:
            await asyncio.sleep(self._progress_interval_s)  # another process writes the log
            line = last_line(child.log)
            self._progress.say(f"{child.spec.name:<24}{'starting':<10}{time.monotonic() - started_at:6.1f} s: {line}")
