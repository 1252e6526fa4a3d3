"""Writes what `slipstream plan` prints under the commands of a page: every ```sh block with a ```text block behind it.

`python -m slipstream.plan_page docs/guides/plan.md`. A test fails while the committed page differs from it.
"""

from __future__ import annotations

import re
import shlex
import sys
from pathlib import Path

from click.testing import CliRunner

from slipstream.commands.plan import plan

SHOWN = re.compile(r"(?P<head>^```sh\nslipstream plan (?P<words>.*?)\n```\n\n```text\n).*?(?=^```$)", re.M | re.S)


def with_output(page: str) -> str:
    """The page with every command's output as it is now. Raises what a command raises."""

    def printed(found: re.Match[str]) -> str:
        words = shlex.split(found["words"].replace("\\\n", " "))
        result = CliRunner().invoke(plan, words, catch_exceptions=False)
        if result.exit_code:
            raise ValueError(f"slipstream plan {found['words']}: {result.output}")
        return found["head"] + result.stdout

    return SHOWN.sub(printed, page)


def main(page: str) -> None:
    """Write the page anew."""
    file = Path(page)
    file.write_text(with_output(file.read_text()))


if __name__ == "__main__":
    main(sys.argv[1])
