"""Writes what commands print under them on a page: every ```sh block of a command below with a ```text block behind it.

`python -m slipstream.printed_page docs/guides/plan.md`, in the repository's root. Tests fail while a committed page
differs from it.
"""

from __future__ import annotations

import re
import shlex
import sys
from pathlib import Path

from click.testing import CliRunner

from slipstream.__main__ import cli

COMMANDS = ("tools plan", "tools engines render")
"""Those that print the same wherever they run: arithmetic of their options and of files of the repository."""
SHOWN = re.compile(
    rf"(?P<head>^```sh\nslipstream (?P<words>(?:{'|'.join(COMMANDS)}) (?:(?!```).)*?)\n```\n\n```text\n).*?(?=^```$)",
    re.M | re.S,
)


def with_output(page: str) -> str:
    """The page with every command's output as it is now. Raises what a command raises."""

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
