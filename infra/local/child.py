"""One watched process: started, probed until ready, restarted after growing waits if it dies, stopped in steps."""

from __future__ import annotations

import asyncio
import contextlib
import enum
import os
import signal
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import msgspec

from contracts.backoff import Backoff
from contracts.errors import ConfigError
from infra.local.config import MAX_SECONDS, LocalConfig
from infra.local.leftovers import descendants, kill
from infra.local.log_file import SUPERVISOR, last_line, rotate
from infra.local.private import free_space
from infra.local.spawn import Launch, spawn
from telemetry.json_lines import json_line

CONFIG_EXIT_CODE = 2
"""The exit code of our own processes on ConfigError: a restart would not help."""
PROBE_INTERVAL_S = 0.05
FIRST_STARTS = 3
"""Starts of a process that is never ready, before the supervisor gives it up instead of restarting it forever."""


class State(enum.StrEnum):
    """The state of a child."""

    STARTING = "starting"
    READY = "ready"
    WAITING = "waiting to restart"
    FAILED = "failed"
    STOPPING = "stopping"
    STOPPED = "stopped"


async def _always() -> bool:
    return True


async def _nothing() -> None:
    return None


def _idle(log: Path) -> bool:
    return False


class ChildSpec(msgspec.Struct, frozen=True, kw_only=True):
    """A command to run and the probe that shows that it serves."""

    name: str
    launch: Launch
    url: str = ""
    """The address to show to people."""
    probe: Callable[[], Awaitable[bool]] = _always
    """True once it serves; polled until then. It raises only ConfigError, which ends the process."""
    before_start: Callable[[], Awaitable[None]] = _nothing
    """Runs before every start and restart. It removes the leftovers of a killed predecessor."""
    stop_signal: int = signal.SIGTERM
    drain_s: float = 0.0
    """Seconds that it may take to stop in addition to `local.stop_timeout_s`."""
    ready_timeout_s: float = 0.0
    """Seconds that it may take to be ready; 0 for `local.ready_timeout_s`."""
    at_work: Callable[[Path], bool] = _idle
    """Whether its log shows work that has its own timeout; if so, its time to be ready starts again."""
    telling_line: Callable[[Path], str] = last_line
    """The line of its log with the reason why it ended."""
    json_log: bool = False
    """Whether its log has one JSON object a line; our notes in it then do too."""


class ChildStatus(msgspec.Struct, frozen=True):
    """A child as `slipstream status` shows it."""

    name: str
    state: State
    pid: int | None
    restarts: int
    uptime_s: float
    url: str


class Child:
    """Owns one process and the task that watches it."""

    def __init__(
        self,
        spec: ChildSpec,
        log: Path,
        config: LocalConfig | None = None,
        notice: Callable[[str], None] = lambda _: None,
    ) -> None:
        """config: None for the defaults. notice: called with a sentence on each unplanned event of the process."""
        self.spec = spec
        self._config = config or LocalConfig()
        self.log = log
        self.state = State.STOPPED
        self.restarts = 0
        self._process: asyncio.subprocess.Process | None = None
        self._started_at = 0.0
        self._watcher: asyncio.Task[None] | None = None
        self._stopping = asyncio.Event()
        self._notice = notice
        self._was_late = False
        self._refusal = ""
        self._settled = asyncio.Event()  # set once READY or FAILED for the first time

    @property
    def pid(self) -> int | None:
        """The process id, or None if it does not run."""
        return self._process.pid if self._process is not None and self._process.returncode is None else None

    @property
    def cpu_s(self) -> float | None:
        """Seconds of CPU time that all threads of the process have used; None if unknown."""
        try:
            stat = Path(f"/proc/{self.pid}/stat").read_text()
            user, system = stat.rpartition(")")[2].split()[11:13]
        except (OSError, ValueError):
            return None
        return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")

    def status(self) -> ChildStatus:
        """The child's current state."""
        uptime_s = time.monotonic() - self._started_at if self.pid is not None else 0.0
        # The process ends a moment before its watcher notices.
        state = State.WAITING if self.state is State.READY and self.pid is None else self.state
        return ChildStatus(self.spec.name, state, self.pid, self.restarts, round(uptime_s, 1), self.spec.url)

    def start(self) -> None:
        """Begin to run and watch the process; return at once."""
        self.state = State.STARTING
        self._watcher = asyncio.create_task(self._watch(), name=f"watch {self.spec.name}")
        self._watcher.add_done_callback(lambda _: self._settled.set())  # if it raised, nothing else sets it

    async def ready(self) -> None:
        """Return once the process serves for the first time. Raises ConfigError, which names the log, if it never does,
        and any error that its watcher did not expect."""
        await self._settled.wait()
        if self._watcher is not None and self._watcher.done():
            self._watcher.result()
        if self.state is State.FAILED:
            line = (
                self._refusal
                or self.spec.telling_line(self.log)
                or f"it wrote nothing ({free_space(self.log)} free for its log)"
            )
            if self._was_late:
                line = f"not ready within {self._limit}, its last line: {line}"
            raise ConfigError(f"{self.spec.name} did not start: {line} (log: {self.log})")

    @property
    def _limit(self) -> str:
        if self.spec.ready_timeout_s:
            return f"{self.spec.ready_timeout_s:g} s"
        setting = f"local.ready_timeout_s = {self._config.ready_timeout_s:g}"
        return f"{setting} (on a slow or busy machine set more in slipstream.toml; seconds, up to {MAX_SECONDS:,})"

    async def stop(self) -> None:
        """Send the stop signal, and SIGKILL after the timeout. Idempotent; never raises."""
        self._stopping.set()
        self._settled.set()
        if self._process is not None and self._process.returncode is None:
            self.state = State.STOPPING
            await self._end(self._process)
        if self._watcher is not None:
            await asyncio.wait([self._watcher])
        self.state = State.STOPPED

    async def _watch(self) -> None:
        config = self._config
        backoff = Backoff(config.restart_first_s, config.restart_max_s, jitter=0, stable_after_s=config.stable_after_s)
        starts = 0
        while not self._stopping.is_set():
            starts += 1
            code = await self._run_once()
            if self._stopping.is_set():
                return
            never_ready = not self._settled.is_set()
            if never_ready and (code == CONFIG_EXIT_CODE or self._refusal or self._was_late or starts >= FIRST_STARTS):
                self.state = State.FAILED
                self._settled.set()
                return
            self.state = State.WAITING
            self.restarts += 1
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._stopping.wait(), backoff.next_s(time.monotonic() - self._started_at))
            if not self._stopping.is_set():
                self._note("is restarted")

    async def _run_once(self) -> int:
        """Run the process once and return its exit code, or the negated number of the signal that killed it."""
        self.state = State.STARTING
        self._refusal = ""
        self._started_at = time.monotonic()
        try:
            rotate(self.log, self._config.log_max_bytes, self._config.log_keep)
            await self.spec.before_start()
            process = await spawn(self.spec.launch, self.log)
        except (OSError, ConfigError) as error:
            self._refusal = str(error)
            self._note(f"cannot be started: {error}", loud=self._settled.is_set())
            return CONFIG_EXIT_CODE
        self._process = process
        if self._stopping.is_set():  # stop() ran during the start and saw no process
            await self._end(process)
            return process.returncode or 0
        probing = asyncio.create_task(self._probe(process), name=f"probe {self.spec.name}")
        code = await process.wait()
        probing.cancel()
        await asyncio.wait([probing])
        _kill_group(process.pid)  # helpers that it left must not keep the port or the folder of its successor
        if not self._stopping.is_set():
            self._note(f"pid {process.pid} ended with {_spoken(code)}")
        return code

    async def _probe(self, process: asyncio.subprocess.Process) -> None:
        timeout_s = self.spec.ready_timeout_s or self._config.ready_timeout_s
        deadline = time.monotonic() + timeout_s
        while not await self._serves():
            if self._refusal:
                self._note(f"was killed: {self._refusal}", loud=self._settled.is_set())
                _kill_group(process.pid)
                return
            if time.monotonic() > deadline:
                if self.spec.at_work(self.log):
                    deadline += timeout_s
                    continue
                self._was_late = True
                self._note(f"was not ready within {self._limit}; killed")
                _kill_group(process.pid)
                return
            await asyncio.sleep(PROBE_INTERVAL_S)
        if not self._stopping.is_set():
            self.state = State.READY
            restarted = self._settled.is_set()
            self._settled.set()
            if restarted:
                self._note(f"is ready again, {time.monotonic() - self._started_at:.1f} s after its restart")

    async def _serves(self) -> bool:
        try:
            return await self.spec.probe()
        except ConfigError as error:
            self._refusal = str(error)
            return False

    async def _end(self, process: asyncio.subprocess.Process) -> None:
        """End the process, then its descendants, including any that left its process group."""
        children = await asyncio.to_thread(descendants, process.pid)
        try:
            await self._end_leader(process)
        finally:
            kill(children)

    async def _end_leader(self, process: asyncio.subprocess.Process) -> None:
        timeout_s = self._config.stop_timeout_s + self.spec.drain_s
        for signal_number in dict.fromkeys((self.spec.stop_signal, self.spec.launch.death_signal)):
            with contextlib.suppress(ProcessLookupError):
                process.send_signal(signal_number)
            try:
                await asyncio.wait_for(process.wait(), timeout_s)
                return
            except TimeoutError:
                self._note(f"was still running {timeout_s:g} s after signal {signal_number}")
        _kill_group(process.pid)
        await process.wait()

    def _note(self, text: str, *, loud: bool = True) -> None:
        """Write a line to the child's own log, where an operator looks first. loud: pass it to `notice` too."""
        if loud:
            self._notice(f"{self.spec.name} {text}")
        stamp = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        note = f"{self.spec.name} {text}"
        line = (
            json_line(time.time(), "WARNING", SUPERVISOR, note) if self.spec.json_log else f"{stamp} supervisor: {note}"
        )
        with contextlib.suppress(OSError), self.log.open("a") as file:
            file.write(f"{line}\n")


def _kill_group(leader: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(leader, signal.SIGKILL)


def _spoken(code: int) -> str:
    if code >= 0:
        return f"exit code {code}"
    with contextlib.suppress(ValueError):  # real-time signals have no names
        return f"signal {signal.Signals(-code).name}"
    return f"signal {-code}"
