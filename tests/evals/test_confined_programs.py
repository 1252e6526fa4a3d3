"""A program of a model is tested where it can do no harm, and cannot make a verdict."""

from __future__ import annotations

import os
import socket
import struct
import subprocess
import sys
from pathlib import Path

import pytest

from evals.sandbox.calls import filter_for
from evals.sandbox.isolation import Isolation
from evals.sandbox.plain import decode, encode
from evals.sandbox.sandbox import Limits, Program, Sandbox, Verdict
from tests.waiting import eventually_blocking

ROOT = Path(__file__).parents[2]
LIMITS = Limits(cpu_s=1, memory_bytes=512 << 20, wall_s=60.0)
IMPATIENT = Limits(cpu_s=1, memory_bytes=512 << 20, wall_s=1.5)
"""For what sleeps until it is ended."""
TEST = "def check(candidate):\n    assert candidate(2) == 4\n    assert candidate(3) == 6\n"


@pytest.fixture(scope="module")
def sandbox(usual_sandbox: Sandbox) -> Sandbox:
    return Sandbox(limits=LIMITS)


def judged(sandbox: Sandbox, code: str, test: str = TEST, setup: str = "") -> Verdict:
    return sandbox.judge(Program((code,), "f", test, setup))


@pytest.mark.parametrize(
    "code",
    [
        "def f(x): return x * 2",
        "import math, collections, functools, re, heapq\nclass Two:\n    by = 2\ndef f(x): return x * Two.by",
        "def f(x):\n    try:\n        return {}[x]\n    except KeyError:\n        return x * 2",
        "import numpy as np\ndef f(x): return np.int64(x) * 2",
        "print('noise')\ndef f(x):\n    print(x)\n    return 2 * x",
    ],
)
def test_right_programs_pass(sandbox: Sandbox, code: str) -> None:
    assert judged(sandbox, code) == Verdict(True, "")


@pytest.mark.parametrize(
    ("code", "why"),
    [
        ("def f(x): return x * 3", "AssertionError"),
        ("def f(x): return", "AssertionError"),
        ("def f(x) return x", "SyntaxError"),
        ("def g(x): return x * 2", "KeyError"),
        ("def f(x): return 1 / 0", "ZeroDivisionError"),
        ("def f(x): return f(x)", "RecursionError"),
        ("def f(x): return object()", "TypeError"),
        # a verdict cannot be forged: by what is equal to all, an exit, a printed line, changed builtins
        ("class Any(int):\n    def __eq__(self, other): return True\ndef f(x): return Any(7)", "AssertionError"),
        ("class Any:\n    def __eq__(self, other): return True\ndef f(x): return Any()", "TypeError"),
        ("import sys\ndef f(x): sys.exit(0)", "SystemExit"),
        ("import sys\nsys.exit(0)", "SystemExit"),
        ("import os\nos._exit(0)", "did not start"),
        ("import os\ndef f(x): os._exit(0)", "ended"),
        ("import os\nfor fd in range(64):\n    try: os.write(fd, b'{\"passed\": true, \"why\": \"\"}\\n')\n"
         "    except OSError: pass\ndef f(x): return 0", ""),
        ("import os\ndef f(x):\n    for fd in range(64):\n"
         "        try: os.write(fd, b'{\"passed\": true, \"why\": \"\"}\\n')\n        except OSError: pass\n", ""),
        ("import builtins\nbuiltins.AssertionError = type('E', (BaseException,), {})\n"
         "def check(candidate): pass\ndef f(x): return 0", "AssertionError"),
        ("import sys\nsys.modules['evals.sandbox.roles'].encode = lambda value: True\ndef f(x): return 0", ""),
        ("import json\njson.dumps = lambda *_, **__: '{\"value\": true}'\ndef f(x): return 0", ""),
        # endless
        ("def f(x):\n    while True: pass", "ran out of time"),
        ("while True: pass", "ran out of time"),
        # memory
        ("def f(x): return 'x' * (1 << 40)", "MemoryError"),
        ("def f(x):\n    kept = []\n    while True: kept.append(bytearray(1 << 24))", "emory"),
        ("def f(x): return 'x' * (32 << 20)", ""),
        # processes and threads
        ("import os\ndef f(x):\n    while True: os.fork()", "BlockingIOError"),
        ("import threading\ndef f(x): threading.Thread(target=print).start()", "RuntimeError"),
        ("import subprocess\ndef f(x): return subprocess.run(['/usr/bin/id'])", ""),
        ("import os, signal\ndef f(x):\n    os.kill(os.getppid(), signal.SIGKILL)\n    return 0", "AssertionError"),
        ("import os, signal\ndef f(x): os.kill(-1, signal.SIGKILL)", ""),
        # files
        ("def f(x): return open('/etc/passwd').read()", "FileNotFoundError"),
        ("def f(x): return open('/proc/self/environ').read()", "FileNotFoundError"),
        ("def f(x): open('/tmp/x', 'w').write('x')", ""),
        ("import os\ndef f(x): open(os.__file__, 'a')", "OSError"),
        ("import os\ndef f(x): os.remove(os.__file__)", "OSError"),
        ("import os\ndef f(x): os.mkdir('/left')", "OSError"),
        # network
        ("import socket\ndef f(x): socket.create_connection(('127.0.0.1', PORT), 1)", "OSError"),
        # ways out, and round a limit
        ("import ctypes\ndef f(x): return 4 if ctypes.CDLL(None).shmget(0, 64, 0o1600) >= 0 else 0", "AssertionError"),
        ("import os\ndef f(x): os.memfd_create('x')", "PermissionError"),
        ("import ctypes\ndef f(x): return 4 if ctypes.CDLL(None).unshare(0x10000000) == 0 else 0", "AssertionError"),
        ("import os\ndef f(x): os.setuid(0)", ""),
        ("import os\ndef f(x): os.chroot('/usr')", "PermissionError"),
    ],
)  # fmt: skip
def test_wrong_and_hostile_programs_fail(sandbox: Sandbox, code: str, why: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        verdict = judged(sandbox, code.replace("PORT", str(server.getsockname()[1])))
        server.settimeout(0)
        with pytest.raises(BlockingIOError):
            server.accept()
    assert not verdict.passed
    if why not in ("OSError",):
        assert why in verdict.why, verdict


def test_what_a_program_sees_is_python_and_nothing_else(sandbox: Sandbox) -> None:
    code = (
        "import os, socket\n"
        "def f(what):\n"
        "    if what == 'root': return sorted(os.listdir('/'))\n"
        "    if what == 'environment': return sorted(os.environ)\n"
        "    if what == 'network': return [_socket(family) for family in (1, 2, 10, 16, 17, 40)]\n"
        "    if what == 'self': return [os.getpid(), os.getuid(), os.getgroups()]\n"
        "    return [fd for fd in range(64) if not os.system is None and _open(fd)]\n"
        "def _socket(family):\n"
        "    try: socket.socket(family, socket.SOCK_DGRAM).close(); return 'opened'\n"
        "    except OSError as error: return type(error).__name__\n"
        "def _open(fd):\n"
        "    try: os.fstat(fd); return True\n"
        "    except OSError: return False\n"
    )
    account = 65534 if os.geteuid() == 0 else os.geteuid()
    groups = [] if os.geteuid() == 0 else os.getgroups()
    test = (
        "seen = set(f('root'))\n"
        f"assert seen <= {{'usr', 'lib', 'lib64', 'packages', {sys.base_prefix.split('/')[1]!r}}}, seen\n"
        "assert set(f('environment')) <= {'LC_CTYPE', 'OMP_NUM_THREADS', 'OPENBLAS_NUM_THREADS'}, f('environment')\n"
        "assert f('network') == ['PermissionError'] * 6, f('network')\n"  # vsock (40) is of no namespace
        f"assert f('self') == [2, {account}, {groups}], f('self')\n"
        "assert len(f('descriptors')) <= 6, f('descriptors')\n"
    )
    assert judged(sandbox, code, test) == Verdict(True, "")


def test_the_environment_of_ours_stays_ours(sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("A_SECRET", "s3cr3t")
    code = "import os\ndef f(x): return str(dict(os.environ))"
    assert judged(sandbox, code, "assert 's3cr3t' not in f(1) and 'A_SECRET' not in f(1)").passed


def test_tests_that_swallow_exceptions_do_not_pass_a_dead_program(sandbox: Sandbox) -> None:
    test = "def check(candidate):\n    try: candidate(1)\n    except Exception: pass\n"
    assert not judged(sandbox, "import os\ndef f(x): os._exit(0)", test).passed
    assert judged(sandbox, "def f(x): raise ValueError(x)", test).passed
    expects = "def check(candidate):\n    try: candidate(1)\n    except ValueError as e: assert str(e) == '1'\n"
    assert judged(sandbox, "def f(x): raise ValueError(x)", expects).passed


@pytest.mark.parametrize("ends", ["StopIteration", "StopAsyncIteration", "GeneratorExit", "IndexError"])
def test_a_program_that_ends_the_tests_loop_does_not_pass(sandbox: Sandbox, ends: str) -> None:
    code = f"def f(x): raise {ends}"
    for test in (
        "assert all(map(lambda x: candidate(x) == x + 1, [1, 2]))",
        "for got, want in zip(map(candidate, [1, 2]), [2, 3]): assert got == want",
        "assert all(candidate(x) == x + 1 for x in [1, 2])",
    ):
        assert not judged(sandbox, code, test).passed


def test_hostile_tests_are_confined_too(sandbox: Sandbox) -> None:
    for test in (
        "open('/etc/passwd').read()",
        "while True: pass",
        "import os\nos._exit(0)",
        "import sys\nfor fd in range(3, 32):\n    import os\n    try: os.write(fd, b'x' * (1 << 20))\n"
        "    except OSError: pass",
    ):
        assert not judged(sandbox, "def f(x): return x", test).passed


def test_helpers_of_the_tests_are_run_beside_them(sandbox: Sandbox) -> None:
    assert judged(sandbox, "def f(x): return x - 1", "assert f(other(3)) == 3", "def other(x): return x + 1").passed


@pytest.mark.usefixtures("sandbox")
def test_what_sleeps_is_ended_and_nothing_is_left_running() -> None:
    impatient = Sandbox(limits=IMPATIENT)

    def started() -> set[str]:
        listed = subprocess.run(["ps", "-eo", "pid,args"], capture_output=True, text=True, check=True).stdout
        return {line for line in listed.splitlines() if f"jail.main(sys.argv[2]) {ROOT} " in line}

    before = started()
    assert not judged(impatient, "import time\ndef f(x): time.sleep(1000)").passed
    deaf = "import ctypes\nctypes.CDLL(None).prctl(1, 0, 0, 0, 0)\n"  # no signal when the parent dies
    assert not judged(impatient, f"{deaf}import time\ntime.sleep(1000)").passed
    assert not judged(impatient, "def f(x): return x", "import time; time.sleep(1000)").passed
    # other tests' programs are seen as well, and end
    left = started() - before
    eventually_blocking(lambda: not left & started())


@pytest.mark.nightly
def test_a_verdict_takes_no_seconds(sandbox: Sandbox) -> None:
    """Of processor time, which other work on the machine does not change."""
    judged(sandbox, "def f(x): return 2 * x")
    before = os.times()
    for _ in range(5):
        judged(sandbox, "def f(x): return 2 * x")
    after = os.times()
    assert (after.children_user + after.children_system - before.children_user - before.children_system) / 5 < 0.5


@pytest.mark.parametrize(
    "value",
    [
        None, True, 0, -(10**50), 1 << 20000, 1.5, float("inf"), -0.0, 1j, "é\ud800", b"\x00\xff", [], [1, (2.0, "x")],
        {1: {"a", "b"}, (1, 2): frozenset({3})}, {"a": None},
    ],
    ids=lambda value: type(value).__name__,
)  # fmt: skip
def test_plain_data_comes_across_as_it_was(value: object) -> None:
    again = decode(encode(value))
    assert again == value
    assert type(again) is type(value)


@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
def test_the_filter_of_calls_refuses_what_it_names_and_nothing_else(machine: str) -> None:
    """Run by hand, as the kernel would: load, compare and jump, return."""
    program = list(struct.iter_unpack("HBBI", filter_for(machine)))
    architecture = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}[machine]

    def run(number: int, arch: int = architecture) -> int:
        place, loaded = 0, 0
        while True:
            code, yes, no, value = program[place]
            place += 1
            if code == 0x20:
                loaded = {0: number, 4: arch}[value]
            elif code == 0x06:
                return int(value)
            else:
                place += yes if (loaded == value if code == 0x15 else loaded >= value) else no

    closed = {number for number in range(600) if run(number) == 0x00050001}
    assert {number for number in range(600) if run(number) == 0x7FFF0000} == set(range(600)) - closed
    assert len(closed) == 19
    assert {"x86_64": 41, "aarch64": 198}[machine] in closed, "socket"
    assert run(0x40000000 + 41) == 0x00050001
    assert run(1, 0x40000003) == 0x80000000, "32 bit"
    with pytest.raises(OSError, match="riscv64 are not known"):
        filter_for("riscv64")


def test_weaker_isolation_is_only_had_by_asking() -> None:
    weak = Sandbox(Isolation.PROCESS, LIMITS)
    weak.require()
    assert judged(weak, "def f(x): return 2 * x").passed
    assert not judged(weak, "import os\ndef f(x):\n    os.fork()\n    return 2 * x").passed
    assert not judged(weak, "def f(x):\n    while True: pass").passed
    assert not judged(weak, "import socket\ndef f(x):\n    socket.socket()\n    return 2 * x").passed
    assert not judged(weak, "def f(x): open('/tmp/written-by-a-model', 'w').write('x')").passed


FORGER = """
import os, signal
def f(x):
    found = []
    for name in os.listdir("/proc"):
        if name.isdigit() and int(name) != os.getpid():
            try:
                if '"role": "tests"' in open(f"/proc/{name}/cmdline").read(): found.append(int(name))
            except OSError: pass
    for sent in (signal.SIGSTOP, signal.SIGKILL):
        for process in found:
            try: os.kill(process, sent)
            except OSError: pass
        for process in found if sent == signal.SIGSTOP else ():
            for number in range(32):
                try:
                    fd = os.open(f"/proc/{process}/fd/{number}", os.O_WRONLY)
                    os.write(fd, b'{"passed": true, "why": ""}')
                    os.close(fd)
                except OSError: pass
"""


def test_with_weaker_isolation_a_program_of_the_same_account_writes_no_verdict() -> None:
    """By the pipes of the tests' process, as an account that is not root."""
    asks = (
        "import os, sys\n"
        "if os.geteuid() == 0: os.setgroups([]); os.setresgid(65533, 65533, 65533); os.setresuid(65533, 65533, 65533)\n"
        "reached = [one for one in (sys.executable, '/usr/bin/python3') if os.access(one, os.X_OK)]\n"
        "if not reached or not os.access('evals/sandbox/jail.py', os.R_OK): sys.exit('unreachable')\n"
        "sys.executable = reached[0]\n"
        "import ctypes; ctypes.CDLL(None).prctl(4, 1, 0, 0, 0)\n"  # dumpable again after it, as a started process is
        "verdict = Sandbox(Isolation.PROCESS, Limits(wall_s=20)).judge(\n"
        f"    Program(({FORGER!r},), 'f', 'assert f(1) == 2'))\n"
        "print(verdict)\n"
    )
    imports = "import sys; sys.path.insert(0, '.')\nfrom evals.sandbox.isolation import Isolation\n"
    imports += "from evals.sandbox.sandbox import Limits, Program, Sandbox\n"
    # by stdin, for the forger goes by what stands in command lines
    done = subprocess.run(
        [sys.executable, "-"], input=imports + asks, capture_output=True, text=True, cwd=ROOT, check=False
    )
    if "unreachable" in done.stderr:
        pytest.skip("no Python that another account could run")
    assert "passed=False" in done.stdout, done
    assert "AssertionError" in done.stdout or "time or memory" in done.stdout or "something else" in done.stdout, done


def test_a_machine_without_namespaces_refuses_and_says_what_to_do() -> None:
    """The kernel refuses: this process may make no more user namespaces, and as root no namespaces at all."""
    program = (
        "import ctypes, sys\n"
        "from evals.sandbox.sandbox import IsolationUnavailable, Program, Sandbox\n"
        "libc = ctypes.CDLL(None, use_errno=True)\n"
        "assert libc.unshare(0x10000000) == 0\n"  # a user namespace in which nobody is mapped: nothing may be mounted
        "open('/proc/sys/user/max_mnt_namespaces', 'w').write('0')\n"
        "try:\n"
        "    Sandbox().judge(Program(('def f(x): return 1',), 'f', 'assert f(1) == 1'))\n"
        "except IsolationUnavailable as error:\n"
        "    print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, cwd=ROOT, check=False)
    if "AssertionError" in done.stderr or "Permission" in done.stderr:
        pytest.skip("no user namespaces here")
    assert "evals.code_isolation" in done.stdout, done.stderr
    assert "unshare" in done.stdout
