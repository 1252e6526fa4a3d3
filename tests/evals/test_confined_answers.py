"""Answers of the slice `code` are shut in where they are scored, and judged as they are in training."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from evals.sandbox.isolation import Isolation
from evals.sandbox.sandbox import IsolationUnavailable, Sandbox
from evals.slices import confined
from evals.slices.catalogue import Catalogue
from evals.slices.item import Slice
from evals.slices.registry import find
from evals.slices.sandbox import BUILTINS, returns
from evals.slices.split import Split

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module", params=list(Isolation))
def sandbox(request: pytest.FixtureRequest) -> Sandbox:
    found = Sandbox(request.param)
    try:
        found.require()
    except IsolationUnavailable as error:
        pytest.skip(str(error))
    return found


@pytest.mark.nightly
def test_answers_are_judged_alike_wherever_they_are_run(sandbox: Sandbox) -> None:
    """Of every family one item: its reference, and answers that are wrong."""
    plain, shut_in = find("code"), Catalogue(sandbox=sandbox).find("code")
    assert isinstance(shut_in, Slice)
    assert shut_in.version == plain.version
    seen: set[str] = set()
    for seed in range(400):
        item = plain.item(seed, Split.HELD_OUT)
        if item.cluster in seen:
            continue
        seen.add(item.cluster)
        other = shut_in.item(seed, Split.HELD_OUT)
        assert (other.messages, other.reference, other.cluster) == (item.messages, item.reference, item.cluster)
        assert item.score(item.reference) == other.score(item.reference) == 1, item.reference
        for wrong in (item.reference.replace("return ", "return 1, "), "I don't know"):
            assert item.score(wrong) == other.score(wrong), wrong
    assert len(seen) >= 25


@pytest.mark.parametrize(
    ("body", "wanted"),
    [
        ("return [x, x * 2]", [[2, 4], [3, 6]]),
        ("return (x, x * 2)", [[2, 4], [3, 6]]),  # results are JSON
        ("return sum(1 for _ in range(x))", [2, 3]),
        ("return x == x", [True, True]),
        ("return x == x", [1, 1]),
        ("return float(x)", [2, 3]),
        ("return {x}", [{2}, {3}]),
        ("return '{braces} \\'quoted\\' \\ud800'", ["{braces} 'quoted' \ud800"] * 2),
        ("return print(x)", [None, None]),
        ("return open('/etc/hostname')", [None, None]),
        ("return f(x)", [2, 3]),
        ("return 'x' * (1 << 29) and x", [2, 3]),
        ("return", [None, None]),
    ],
)
def test_a_function_returns_the_same_in_both(sandbox: Sandbox, body: str, wanted: list[object]) -> None:
    code, calls = f"def f(x):\n    {body}\n", [[2], [3]]
    assert confined.returns(sandbox.isolation, code, "f", calls, wanted) == returns(code, "f", calls, wanted)


def test_an_endless_function_is_ended(sandbox: Sandbox) -> None:
    """test_sandbox.py has the other one's."""
    assert not confined.returns(sandbox.isolation, "def f(x):\n    while True:\n        x = x + 1\n", "f", [[2]], [2])


def test_who_gets_past_the_subset_is_shut_in(sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(confined, "is_harmless", lambda _: True)
    monkeypatch.setattr(confined, "BUILTINS", (*BUILTINS, "__import__"))
    attempts = ["posix.fork()"]
    if sandbox.isolation is Isolation.NAMESPACES:
        attempts += [
            "posix.listdir('/etc')",
            f"posix.open({str(ROOT / 'pyproject.toml')!r}, 0)",
            "__import__('socket').socket()",
        ]  # fmt: skip
    for attempt in attempts:
        code = f"def f(x):\n    import posix\n    {attempt}\n    return x\n"
        assert not confined.returns(sandbox.isolation, code, "f", [[2]], [2]), attempt
    code = "def f(x):\n    import posix\n    posix.getpid()\n    return x\n"
    assert confined.returns(sandbox.isolation, code, "f", [[2]], [2])


def test_a_machine_without_namespaces_refuses_the_slice_and_no_other() -> None:
    """The kernel refuses: this process may make no namespaces."""
    program = (
        "import ctypes\n"
        "from evals.sandbox.isolation import Isolation\n"
        "from evals.sandbox.sandbox import IsolationUnavailable, Sandbox\n"
        "from evals.slices.catalogue import Catalogue\n"
        "libc = ctypes.CDLL(None, use_errno=True)\n"
        "assert libc.unshare(0x10000000) == 0\n"
        "open('/proc/sys/user/max_mnt_namespaces', 'w').write('0')\n"
        "found = Catalogue()\n"
        "item = found.find('code').item(3)\n"
        "assert found.to_score('facts').name == 'facts'\n"
        "for refused in (lambda: found.to_score('code'), lambda: item.score(item.reference)):\n"
        "    try:\n"
        "        print('scored', refused())\n"
        "    except IsolationUnavailable as error:\n"
        "        print(error)\n"
        "assert item.score('no code') == 0\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, cwd=ROOT, check=False)
    if "libc.unshare" in done.stderr or "Permission" in done.stderr:
        pytest.skip("no user namespaces here")
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("evals.code_isolation is namespaces") == 2
    assert "scored" not in done.stdout
