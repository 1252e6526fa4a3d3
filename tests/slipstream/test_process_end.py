"""A process that has served ends without taking its modules apart, and loses nothing by it."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.deployment import ROOT
from tests.waiting import GUARD_S

PROGRAM = """
import atexit
from slipstream.process_end import leave

class Kept:
    def __del__(self):
        print("taken apart", flush=True)

kept = Kept()
atexit.register(print, "registered for the end")
print("said before", end=" ")
END
"""


@pytest.mark.parametrize(
    ("end", "said"),
    [("leave()", "said before registered for the end\n"), ("", "said before registered for the end\ntaken apart\n")],
)
def test_what_registered_itself_for_the_end_runs_and_nothing_is_taken_apart(end: str, said: str) -> None:
    command = (sys.executable, "-c", PROGRAM.replace("END", end))
    ended = subprocess.run(command, capture_output=True, text=True, timeout=GUARD_S, cwd=ROOT, check=False)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, said, "")
