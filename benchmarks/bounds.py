"""Bounds that the documentation promises: a benchmark names those it missed, and with `--check` exits with an error."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence


def add_check(parser: argparse.ArgumentParser) -> None:
    """The option `--check`."""
    parser.add_argument("--check", action="store_true", help="end with an error when a promised bound is missed")


def tell(missed: Sequence[str], check: bool) -> None:
    """Name the missed bounds on stderr. Raises SystemExit with 1 if there are any and `check` is set."""
    for each in missed:
        print(f"MISSED: {each}", file=sys.stderr)
    if check and missed:
        sys.exit(1)
