"""Run pytest, then what failed once more, each test alone: `python -m tests.once_more PYTEST-ARGUMENTS`.

For system tests, which start many processes on a machine that may be busy. A test that fails and then passes is flaky:
it is printed, and a line is added to the file that SLIPSTREAM_TEST_FLAKY names (build/flaky.txt by default). A test
that fails twice fails the run, as do errors outside of tests, and more failures than chance explains. The gate repeats
none.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

import pytest

MOST = 10
"""More failures than this are no chance."""
FLAKY = "SLIPSTREAM_TEST_FLAKY"
DEFAULT_FLAKY = Path(__file__).parents[1] / "build" / "flaky.txt"


class Failures:
    """A plugin of pytest that keeps which tests failed, and a line of each failure."""

    def __init__(self) -> None:
        self.found: dict[str, str] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """One phase of a test has ended. xdist's processes report to the one that this runs in."""
        if report.failed:
            self.found.setdefault(without_group(report.nodeid), _said(report))


def main(arguments: Sequence[str]) -> int:
    """Exit code: pytest's; 0 where every test that failed passed when it was repeated."""
    failures = Failures()
    code = int(pytest.main([*arguments], plugins=[failures]))
    if code != pytest.ExitCode.TESTS_FAILED or not failures.found:
        return code
    if len(failures.found) > MOST:
        print(f"\nnone of the {len(failures.found)} tests that failed is repeated: more than {MOST} are no chance")
        return code
    flaky = {test: said for test, said in failures.found.items() if _passes_alone(test)}
    _note(flaky)
    return 0 if len(flaky) == len(failures.found) else code


def without_group(test: str) -> str:
    """A test's name without the group that xdist's scheduler reads behind it."""
    return test[: test.rindex("@")] if test.rfind("@") > test.rfind("]") else test


def _said(report: pytest.TestReport) -> str:
    crash = getattr(report.longrepr, "reprcrash", None)
    if crash is not None:
        return str(crash.message).partition("\n")[0]
    return report.longreprtext.strip().rpartition("\n")[2]


def _passes_alone(test: str) -> bool:
    print(f"\nonce more, alone: {test}", flush=True)
    # a mark expression of nothing takes what the gate leaves out
    return subprocess.run([sys.executable, "-m", "pytest", "-m", "", test], check=False).returncode == 0


def _note(flaky: Mapping[str, str]) -> None:
    """Print them and add them to the file."""
    file = Path(os.environ.get(FLAKY, DEFAULT_FLAKY))
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("a") as kept:
        for test, said in flaky.items():
            print(f"FLAKY {test}: {said}")
            kept.write(f"{datetime.now(UTC):%Y-%m-%d %H:%M}, {test}, {said}\n")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
