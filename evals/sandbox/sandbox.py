"""Runs programs that a model wrote against tests, where neither can do harm.

The program and its tests are two processes, each shut in by `jail.py`; between them go calls and plain data. So the
program cannot forge a verdict: it is never in the process that judges.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import importlib.util
import json
import os
import secrets
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from subprocess import PIPE
from typing import IO

from contracts.errors import ConfigError
from evals.sandbox import jail
from evals.sandbox.isolation import Isolation

PACKAGES = ("numpy", "numpy.libs")
"""What programs and tests may import beside the standard library, where it is installed."""
_MOST_VERDICT_BYTES = 65536
_ROOT = Path(__file__).parents[2]
# What the program could import is shut off again before it runs.
_START = (
    "import sys; sys.path.insert(0, sys.argv[1]); from evals.sandbox import jail; del sys.path[0]; "
    "jail.main(sys.argv[2])"
)


class IsolationUnavailable(ConfigError):
    """This machine cannot shut code in as the settings demand."""


@dataclasses.dataclass(frozen=True)
class Limits:
    """Of each of the two processes."""

    cpu_s: int = 10
    memory_bytes: int = 1 << 30
    """Of address space; numpy maps a quarter of it."""
    wall_s: float = 60.0
    """From start to end; ends what sleeps. What computes is ended by its processor time, which load does not change."""


@dataclasses.dataclass(frozen=True)
class Program:
    """What a model wrote, and its tests."""

    code: tuple[str, ...]
    """Parts, run one after the other in one scope."""
    entry_point: str
    """The function that is tested."""
    test: str
    """Python that raises when the function is wrong; either itself, or in a function `check(candidate)` it defines."""
    setup: str = ""
    """Python for the tests only, run before them: helpers they call."""


@dataclasses.dataclass(frozen=True)
class Verdict:
    """Whether the tests passed, and if not, why."""

    passed: bool
    why: str


class Sandbox:
    """Where programs are tested."""

    def __init__(self, isolation: Isolation = Isolation.NAMESPACES, limits: Limits | None = None) -> None:
        """limits: of each process; more than enough for a small function if not given."""
        self.isolation = isolation
        self._limits = limits or Limits()

    def require(self) -> None:
        """See that the isolation works here. Raises IsolationUnavailable."""
        _proven(self.isolation)

    def judge(self, program: Program) -> Verdict:
        """Run the tests; blocks for as long as they take, at most `wall_s` and a little.

        Raises IsolationUnavailable: what could not be run is no wrong answer.
        """
        with contextlib.ExitStack() as open_files:
            asked, ask = (open_files.enter_context(file) for file in _pipe())
            replied, reply = (open_files.enter_context(file) for file in _pipe())
            with (
                self._started("candidate", (), stdin=asked, stdout=reply) as candidate,
                self._started("tests", (ask.fileno(), replied.fileno())) as tests,
            ):
                open_files.close()  # each end is now held by one process: when that ends, the other is told
                verdict = _verdict(program, tests)
        for process in (tests, candidate):
            assert process.stderr is not None
            with process.stderr:
                said = process.stderr.read(1000).decode(errors="replace")
            # Nothing foreign holds this pipe.
            if said.startswith(jail.REFUSED):
                raise _unavailable(said.removeprefix(jail.REFUSED))
        return verdict

    @contextlib.contextmanager
    def _started(
        self, role: str, fds: Sequence[int], *, stdin: IO[bytes] | int = PIPE, stdout: IO[bytes] | int = PIPE
    ) -> Iterator[subprocess.Popen[bytes]]:
        folders = packages()
        config = {
            "isolation": self.isolation.value, "role": role, "fds": list(fds), "packages": folders,
            "paths": sorted({str(Path(folder).parent) for folder in folders.values()}),
            **dataclasses.asdict(self._limits),
        }  # fmt: skip
        process = subprocess.Popen(
            [sys.executable, "-I", "-S", "-B", "-c", _START, str(_ROOT), json.dumps(config)],
            stdin=stdin, stdout=stdout, stderr=PIPE, pass_fds=fds, cwd="/",
            env={"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"},
        )  # fmt: skip
        try:
            yield process
        finally:
            process.kill()  # and with it, by the kernel, all it started
            process.wait()
            if process.stdout is not None:
                process.stdout.close()


def _pipe() -> tuple[IO[bytes], IO[bytes]]:
    read, write = os.pipe()
    return os.fdopen(read, "rb", 0), os.fdopen(write, "wb", 0)


def _verdict(program: Program, tests: subprocess.Popen[bytes]) -> Verdict:
    assert tests.stdin is not None
    assert tests.stdout is not None
    # Where the tests ended before they read all, what they said tells why.
    # Known to the tests' process alone: what anything else writes into its pipe is no verdict.
    nonce = secrets.token_hex(16)
    with contextlib.suppress(BrokenPipeError), tests.stdin:
        tests.stdin.write(json.dumps({**dataclasses.asdict(program), "nonce": nonce}).encode() + b"\n")
    try:
        found = json.loads(tests.stdout.read(_MOST_VERDICT_BYTES))
        if found["nonce"] != nonce:
            return Verdict(False, "something else than the tests told a verdict")
        return Verdict(found["passed"] is True, str(found["why"]))
    except (ValueError, KeyError, TypeError):
        return Verdict(False, "the tests ran out of time or memory")


def _unavailable(said: str) -> IsolationUnavailable:
    return IsolationUnavailable(
        f"evals.code_isolation is namespaces, which this machine does not allow ({said}). Run as a user who may make "
        "user namespaces (sysctl user.max_user_namespaces, in a container its seccomp profile), leave the slices with "
        "code away, or set evals.code_isolation to process, which keeps code from the network, not from reading files"
    )


@functools.lru_cache(maxsize=1)
def packages() -> dict[str, str]:
    """Folders of what may be imported beside the standard library, by name; empty where none is installed."""
    spec = importlib.util.find_spec("numpy")
    folder = Path(spec.origin).parent.parent if spec and spec.origin else None
    return {name: str(folder / name) for name in PACKAGES if folder is not None and (folder / name).is_dir()}


@functools.lru_cache(maxsize=len(Isolation))
def _proven(isolation: Isolation) -> None:
    verdict = Sandbox(isolation).judge(Program(("def one():\n    return 1\n",), "one", "assert one() == 1"))
    if not verdict.passed:
        raise IsolationUnavailable(f"evals.code_isolation is {isolation}: a first program did not run: {verdict.why}")
