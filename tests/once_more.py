"""Run pytest, then each test that failed once more, alone: `python -m tests.once_more PYTEST-ARGUMENTS`.

For system tests, which start many processes on a machine that may be busy. A test that fails and then passes is flaky:
it is printed, and a line is added to the file that TEST_FLAKY names (build/flaky.txt by default). A test
that fails twice fails the run, as do errors outside of tests, and more kinds of failure than chance explains. Tests
that failed with the same words, such as those of one deployment that did not start, are run in one process. The gate
repeats none.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

import pytest

MAX = 10
"""More kinds of failure than this are not chance."""
FLAKY = "TEST_FLAKY"
DEFAULT_FLAKY = Path(__file__).parents[1] / "build" / "flaky.txt"


class Failures:
    """A plugin of pytest that keeps which tests failed, with a line of each failure, and which passed."""

    def __init__(self) -> None:
        self.found: dict[str, str] = {}
        self.passed: set[str] = set()
        self.stops = False
        """Whether the run ends at a number of failures (`-x`, `--maxfail`): some tests may not have run."""

    def pytest_configure(self, config: pytest.Config) -> None:
        """pytest has read its arguments."""
        self.stops = bool(config.getoption("maxfail"))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """One phase of a test has ended. xdist's processes report to the one that this runs in."""
        test = without_group(report.nodeid)
        if report.failed:
            self.found.setdefault(test, _first_line(report))
            self.passed.discard(test)
        elif report.passed and report.when == "call":
            self.passed.add(test)


def main(arguments: Sequence[str]) -> int:
    """Exit code: pytest's; 0 where every test that failed passed when it was repeated."""
    failures = Failures()
    code = int(pytest.main([*arguments], plugins=[failures]))
    if code != pytest.ExitCode.TESTS_FAILED or not failures.found:
        return code
    if len(set(failures.found.values())) > MAX:
        print(
            f"\n{len(failures.found)} failed tests are not run again: more than {MAX} kinds of failure are not chance"
        )
        return code
    kinds: dict[str, list[str]] = {}
    for test, line in failures.found.items():
        kinds.setdefault(line, []).append(test)
    again = set().union(*map(_failing_again, kinds.values()))
    flaky = {test: said for test, said in failures.found.items() if test not in again}
    _note(flaky)
    return 0 if len(flaky) == len(failures.found) and not failures.stops else code


def record_failures(file: str, tests: Sequence[str]) -> None:
    """Run these tests and write the names of those that do not pass to the file: a skipped one has proven nothing."""
    failures = Failures()
    # a mark expression of nothing takes what the gate leaves out
    pytest.main(["-m", "", *tests], plugins=[failures])
    Path(file).write_text("\n".join(test for test in tests if test not in failures.passed))


def without_group(test: str) -> str:
    """A test's name without the group that xdist's scheduler reads behind it."""
    return test[: test.rindex("@")] if test.rfind("@") > test.rfind("]") else test


def _first_line(report: pytest.TestReport) -> str:
    crash = getattr(report.longrepr, "reprcrash", None)
    if crash is not None:
        return str(crash.message).partition("\n")[0]
    return report.longreprtext.strip().rpartition("\n")[2]


def _failing_again(tests: Sequence[str]) -> set[str]:
    """Those of the tests that fail once more, in another process: a process runs pytest only once."""
    print("\nonce more, alone:", *tests, sep="\n  ", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "failed"
        program = "import sys; from tests.once_more import record_failures as run; run(sys.argv[1], sys.argv[2:])"
        subprocess.run([sys.executable, "-c", program, str(file), *tests], check=False)
        return set(file.read_text().splitlines() if file.exists() else tests)


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
