"""Code of a model is run, and can do no harm."""

from __future__ import annotations

import os

import pytest

from evals.slices import sandbox
from evals.slices.registry import find
from evals.slices.split import Split

CALLS = [[2], [3]]


def test_a_function_is_run_on_values() -> None:
    assert sandbox.results("def f(x):\n    return [x, x * 2]\n", "f", CALLS) == [[2, 4], [3, 6]]


@pytest.mark.parametrize(
    "body",
    [
        "import os\n    return os.getpid()",
        "return open('/etc/hostname').read()",
        "return ().__class__.__base__.__subclasses__()",
        "return '{0.__class__}'.format(x)",
        "return __import__('os')",
        "return eval('1')",
        "return getattr(x, 'real')",
        "while True:\n        x = x + 1",
        "return 'x' * (1 << 40)",
        "return f(x)",
        "return 1 / 0",
        "return {1, 2}",
        "return y",
        "yield x",
        "g = (y for y in [x])\n    return 0 if g.gi_frame else 1",
        "g = (z.gi_code.co_consts for z in [x])\n    return 0",
        "return x.f_back",
        "return x.tb_frame.f_globals",
        "return x.cr_frame or x.ag_frame",
        "match x:\n        case int(__class__=kind):\n            return 0",
        "match x:\n        case int(gi_frame=frame):\n            return 0\n    return 1",
        "try:\n        return x\n    except* x as group:\n        return 0",
        "return x.ｇi_frame",
    ],
)
def test_what_is_not_allowed_fails_or_hangs_has_no_results(body: str) -> None:
    assert sandbox.results(f"def f(x):\n    {body}\n", "f", CALLS) is None


@pytest.mark.parametrize(
    "code", ["x = 1", "def f(x) return x", "print('hi')\ndef f(x):\n    return x", "@f\ndef f(x):\n    return x", "\0"]
)
def test_only_functions_are_run(code: str) -> None:
    assert sandbox.results(code, "f", CALLS) is None


def test_code_is_judged_by_what_it_returns() -> None:
    for seed in range(400):
        item = find("code").item(seed, Split.HELD_OUT)
        if "larger of two" in item.messages[-1]["content"] and "items" not in item.reference:
            break
    name = item.reference.split("(")[0].removeprefix("def ")
    assert item.check(
        f"Here you are:\n```python\ndef {name}(p, q):\n    if p > q:\n        return p\n    return q\n```\nDone."
    )
    assert not item.check(f"def {name}(a, b):\n    return min(a, b)")
    assert not item.check(f"def {name}(a, b):\n    return a > b")
    assert not item.check(f"def {name}(a):\n    return a")
    assert not item.check("def other(a, b):\n    return max(a, b)")
    assert not item.check(f"Use max for {name}.")


def test_true_is_not_one() -> None:
    for seed in range(400):
        item = find("code").item(seed, Split.HELD_OUT)
        if "% 2 == 0" in item.reference:
            break
    assert not item.check(item.reference.replace("x % 2 == 0", "1 - x % 2"))


def test_a_generator_is_no_way_to_the_interpreter() -> None:
    code = (
        "def f(x):\n    held = []\n    walk = (one.gi_frame.f_back.f_back.f_globals for one in held)\n"
        "    held.append(walk)\n    return [len(found) for found in walk]\n"
    )
    assert not sandbox.is_harmless(code)
    assert sandbox.results("def f(x):\n    return sum(y * y for y in range(x))\n", "f", CALLS) == [1, 5]


@pytest.mark.parametrize(
    "attempt",
    [
        "posix.fork()",
        "posix.open('/etc/passwd', 0)",
        "posix.close(0) or posix.open('/etc/passwd', 0)",
        "posix.close(0) or posix.dup(1)",
        "modules['ctypes'].CDLL(None).socket(1, 1, 0) == -1 and 1 / 0",
    ],
)
def test_past_the_subset_there_is_no_process_file_or_socket(attempt: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second guard by itself: without the first."""
    monkeypatch.setattr(sandbox, "is_harmless", lambda _: True)
    monkeypatch.setattr(sandbox, "BUILTINS", (*sandbox.BUILTINS, "__import__"))
    got = "    from sys import modules\n    posix = modules['posix']\n"
    assert sandbox.results(f"def f(x):\n{got}    return posix.geteuid()\n", "f", [[2]]) in ([65534], [os.geteuid()])
    assert sandbox.results(f"def f(x):\n{got}    return posix.geteuid()\n", "f", [[2]]) != [0]
    assert sandbox.results(f"def f(x):\n{got}    {attempt}\n    return x\n", "f", [[2]]) is None
