"""`python -m tests.once_more` distinguishes tests that pass, fail once and always fail."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.deployment import ROOT
from tests.once_more import FLAKY, MAX, without_group

SOUND = "def test_sound(): pass\n"
FLAKES = """
from pathlib import Path
def test_flaky():
    known = Path("known")
    if not known.exists():
        known.touch()
        raise ValueError("busy\\nor so")
"""
BROKEN = "def test_broken(): assert 1 == 2\n"
INI = "[pytest]\naddopts = -m 'not system'\nmarkers = system\n"


def run(folder: Path, *arguments: str, **files: str) -> tuple[subprocess.CompletedProcess[str], list[str]]:
    """The run's end, and the lines of the file of flaky tests."""
    (folder / "pytest.ini").write_text(INI)
    for name, text in files.items():
        (folder / f"test_{name}.py").write_text(text)
    flaky = folder / "kept" / "flaky.txt"
    environment = {
        **os.environ, "PYTHONPATH": str(ROOT), FLAKY: str(flaky),
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTEST_ADDOPTS": "",
    }  # fmt: skip
    ended = subprocess.run(
        [sys.executable, "-m", "tests.once_more", *arguments],
        cwd=folder, env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    return ended, flaky.read_text().splitlines() if flaky.exists() else []


def test_a_test_that_passes_when_repeated_is_recorded_and_the_run_passes(tmp_path: Path) -> None:
    marked = "import pytest\npytestmark = pytest.mark.system\n" + FLAKES
    ended, flaky = run(tmp_path, "-m", "system or not system", sound=SOUND, flakes=marked)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "FLAKY test_flakes.py::test_flaky: ValueError: busy" in ended.stdout
    [line] = flaky
    assert line.endswith(", test_flakes.py::test_flaky, ValueError: busy")


def test_a_test_that_fails_twice_fails_the_run_and_flaky_tests_are_still_recorded(tmp_path: Path) -> None:
    ended, flaky = run(tmp_path, flakes=FLAKES, broken=BROKEN)
    assert ended.returncode == pytest.ExitCode.TESTS_FAILED
    assert [line.split(", ")[1] for line in flaky] == ["test_flakes.py::test_flaky"]


def test_a_repeat_that_is_skipped_and_a_run_that_stopped_early_prove_nothing(tmp_path: Path) -> None:
    skipped = FLAKES.replace("def test_flaky():", "import pytest\ndef test_flaky():").replace(
        "    if not known.exists():", "    if known.exists():\n        pytest.skip('no browser')\n    else:"
    )
    ended, flaky = run(tmp_path, skipped=skipped)
    assert (ended.returncode, flaky) == (pytest.ExitCode.TESTS_FAILED, [])
    (tmp_path / "test_skipped.py").unlink()
    for count, stop in enumerate(("-x", "--maxfail=1"), 1):
        (tmp_path / "known").unlink()
        ended, flaky = run(tmp_path, stop, flakes=FLAKES, unrun=BROKEN)
        assert (ended.returncode, len(flaky)) == (pytest.ExitCode.TESTS_FAILED, count)


def test_tests_that_fail_for_different_reasons_are_repeated_in_a_process_each(tmp_path: Path) -> None:
    program = "import os\nfrom pathlib import Path\n" + "".join(
        f"""
def test_{name}():
    with Path("processes").open("a") as file:
        print(os.getpid(), file=file)
    raise ValueError("{name}")
"""
        for name in ("one", "other")
    )
    ended, flaky = run(tmp_path, different=program)
    assert ended.returncode == pytest.ExitCode.TESTS_FAILED
    assert flaky == []
    first, also_first, *again = (tmp_path / "processes").read_text().split()
    assert first == also_first
    assert len({first, *again}) == 3


def test_many_tests_that_fail_for_one_reason_are_repeated_in_one_process(tmp_path: Path) -> None:
    shared = "import pytest\n" + FLAKES.replace("test_flaky", "start")
    shared += "@pytest.fixture(scope='session')\ndef started(): start()\n"
    shared += "".join(f"def test_{number}(started): pass\n" for number in range(MAX + 1))
    ended, flaky = run(tmp_path, shared=shared)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert len(flaky) == MAX + 1


def test_many_failures_are_not_repeated(tmp_path: Path) -> None:
    many = "".join(f"def test_{number}(): raise ValueError({number})\n" for number in range(MAX + 1))
    ended, flaky = run(tmp_path, many=many)
    assert ended.returncode == pytest.ExitCode.TESTS_FAILED
    assert f"{MAX + 1} failed tests are not repeated" in ended.stdout
    assert flaky == []


def test_a_file_that_cannot_be_read_fails_the_run(tmp_path: Path) -> None:
    ended, flaky = run(tmp_path, sound=SOUND, unreadable="def test_(:\n")
    assert ended.returncode == pytest.ExitCode.INTERRUPTED
    assert flaky == []


@pytest.mark.parametrize(
    ("name", "plain"),
    [
        ("tests/a.py::test_b", "tests/a.py::test_b"),
        ("tests/a.py::test_b@shared", "tests/a.py::test_b"),
        ("tests/a.py::test_b[x@y]", "tests/a.py::test_b[x@y]"),
        ("tests/a.py::test_b[x@y]@tests/a.py", "tests/a.py::test_b[x@y]"),
    ],
)
def test_the_group_is_removed_from_a_tests_name(name: str, plain: str) -> None:
    assert without_group(name) == plain
