"""Run pytest, then repeat each failed test in another process: `python -m tests.once_more PYTEST-ARGUMENTS`.

System tests need this, because they start many processes on a machine that may be busy. A test that fails and then
passes is flaky: it is printed and added to the file TEST_FLAKY (build/flaky.txt by default). The run fails if a test
fails twice, if an error occurs outside of tests, or if there are more than MAX different errors. Tests with the same
error, such as those of one deployment that did not start, share a process.
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
"""More different errors than this are not chance."""
FLAKY = "TEST_FLAKY"
DEFAULT_FLAKY = Path(__file__).parents[1] / "build" / "flaky.txt"


class Failures:
    """A pytest plugin that records the failed tests, with a line of each error, and the passed ones."""

    def __init__(self) -> None:
        self.found: dict[str, str] = {}
        self.passed: set[str] = set()
        self.stops = False
        """Whether `-x` or `--maxfail` may end the run before all tests have run."""

    def pytest_configure(self, config: pytest.Config) -> None:
        """pytest has read its arguments."""
        self.stops = bool(config.getoption("maxfail"))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """One phase of a test has ended. xdist's workers report to this process."""
        test = without_group(report.nodeid)
        if report.failed:
            self.found.setdefault(test, _first_line(report))
            self.passed.discard(test)
        elif report.passed and report.when == "call":
            self.passed.add(test)


def main(arguments: Sequence[str]) -> int:
    """Return pytest's exit code, or 0 if every failed test passed when it was repeated."""
    failures = Failures()
    code = int(pytest.main([*arguments], plugins=[failures]))
    if code != pytest.ExitCode.TESTS_FAILED or not failures.found:
        return code
    if len(set(failures.found.values())) > MAX:
        print(f"\n{len(failures.found)} failed tests are not repeated: more than {MAX} different errors are not chance")
        return code
    kinds: dict[str, list[str]] = {}
    for test, line in failures.found.items():
        kinds.setdefault(line, []).append(test)
    again = set().union(*map(_failing_again, kinds.values()))
    flaky = {test: line for test, line in failures.found.items() if test not in again}
    _record_flaky(flaky)
    return 0 if len(flaky) == len(failures.found) and not failures.stops else code


def record_failures(file: str, tests: Sequence[str]) -> None:
    """Run these tests and write the names of those that do not pass to the file. A skipped test proves nothing."""
    failures = Failures()
    # an empty mark expression selects the tests that pyproject.toml excludes
    pytest.main(["-m", "", *tests], plugins=[failures])
    Path(file).write_text("\n".join(test for test in tests if test not in failures.passed))


def without_group(test: str) -> str:
    """A test's name without the group that conftest.py appends."""
    return test[: test.rindex("@")] if test.rfind("@") > test.rfind("]") else test


def _first_line(report: pytest.TestReport) -> str:
    crash = getattr(report.longrepr, "reprcrash", None)
    if crash is not None:
        return str(crash.message).partition("\n")[0]
    return report.longreprtext.strip().rpartition("\n")[2]


def _failing_again(tests: Sequence[str]) -> set[str]:
    """The tests that fail again, in another process: a process runs pytest only once."""
    print("\nonce more:", *tests, sep="\n  ", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "failed"
        program = "import sys; from tests.once_more import record_failures as run; run(sys.argv[1], sys.argv[2:])"
        subprocess.run([sys.executable, "-c", program, str(file), *tests], check=False)
        return set(file.read_text().splitlines() if file.exists() else tests)


def _record_flaky(flaky: Mapping[str, str]) -> None:
    """Print the tests and add them to the file."""
    file = Path(os.environ.get(FLAKY, DEFAULT_FLAKY))
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("a") as kept:
        for test, line in flaky.items():
            print(f"FLAKY {test}: {line}")
            kept.write(f"{datetime.now(UTC):%Y-%m-%d %H:%M}, {test}, {line}\n")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
