"""Writes the output of commands into a page: the ```text block after each ```sh block of one of the commands below.

Run `python -m slipstream.printed_page docs/guides/plan.md` in the repository's root. A test fails if a committed page
is out of date.
"""

from __future__ import annotations

import re
import shlex
import sys
from pathlib import Path

from click.testing import CliRunner

from slipstream.__main__ import cli

COMMANDS = ("tools plan", "tools engines render")
"""Commands with the same output everywhere: they compute it from their options and the repository's files."""
SHOWN = re.compile(
    rf"(?P<head>^```sh\nslipstream (?P<words>(?:{'|'.join(COMMANDS)}) (?:(?!```).)*?)\n```\n\n```text\n).*?(?=^```$)",
    re.M | re.S,
)


def with_output(page: str) -> str:
    """The page with every command's present output. Raises ValueError if a command fails, and its own errors."""

    def printed(found: re.Match[str]) -> str:
        words = shlex.split(found["words"].replace("\\\n", " "))
        result = CliRunner().invoke(cli, words, catch_exceptions=False)
        if result.exit_code:
            raise ValueError(f"slipstream {found['words']}: {result.output}")
        return found["head"] + result.stdout

    return SHOWN.sub(printed, page)


def main(pages: list[str]) -> None:
    """Rewrite the pages."""
    for page in pages:
        file = Path(page)
        file.write_text(with_output(file.read_text()))


if __name__ == "__main__":
    main(sys.argv[1:])
