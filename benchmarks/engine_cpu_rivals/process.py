"""A rival's processes, in a session of their own: counts their CPU, and pauses and ends them together."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from pathlib import Path

import psutil

from benchmarks.processes import cpu_s

REPOSITORY = Path(__file__).parents[2]


class ProcessTree:
    """One child process and its descendants."""

    def __init__(
        self, name: str, command: list[str], environment: dict[str, str], scratch: Path, *, piped: bool = False
    ) -> None:
        """environment: added to that of this process, without its SLIPSTREAM_ settings. scratch: the working directory,
        which also holds the log. piped: stdin and stdout are pipes to this process."""
        self._name = name
        self._log = scratch / f"{name}.log"
        ours = {key: value for key, value in os.environ.items() if not key.startswith("SLIPSTREAM_")}
        with self._log.open("wb") as log:
            self.process = subprocess.Popen(
                command,
                cwd=scratch,
                env={**ours, **environment},
                stdin=subprocess.PIPE if piped else subprocess.DEVNULL,
                stdout=subprocess.PIPE if piped else log,
                stderr=log,
                start_new_session=True,
            )

    def require_running(self) -> None:
        """Raise RuntimeError with the end of the log if the first process has ended."""
        if self.process.poll() is not None:
            tail = self._log.read_text(errors="replace")[-3000:]
            raise RuntimeError(f"{self._name} ended with {self.process.returncode}:\n{tail}")

    def cpu_s(self) -> float:
        """User and kernel CPU time so far of all living processes."""
        spent_s = 0.0
        for pid in self._pids():
            with contextlib.suppress(psutil.NoSuchProcess):
                spent_s += cpu_s(pid)
        return spent_s

    def pause(self) -> None:
        """Send SIGSTOP to all."""
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Send SIGCONT to all."""
        self._signal(signal.SIGCONT)

    def stop(self) -> None:
        """Send SIGKILL to all, and wait for the first."""
        self._signal(signal.SIGKILL)
        self.process.wait()

    def _signal(self, number: signal.Signals) -> None:
        for pid in self._pids():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)

    def _pids(self) -> list[int]:
        try:
            root = psutil.Process(self.process.pid)
            return [root.pid, *(child.pid for child in root.children(recursive=True))]
        except psutil.NoSuchProcess:
            return []
