"""`python -m tests.costs` counts the costs of the operations in docs/reference/costs.md.

It compares them with the recorded ones, and prints them as JSON unless stdout is a terminal. `--write` instead records
the operations that did not rise in `counts.json` and writes the page; with `--raise NAME` (repeatable), it also records
that operation. `--page` only writes the page.
"""

from __future__ import annotations

import argparse
import os
import sys

from tests.costs import stepping_clock

ENVIRONMENT = {"PYTHONHASHSEED": "0", "PYTHONMALLOC": "", "PYTHONDEVMODE": "", "PYTHONASYNCIODEBUG": ""}
"""Each of these changes the numbers."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--raise", dest="raised", action="append", default=[], metavar="NAME", help="with --write")
    parser.add_argument("--page", action="store_true")
    arguments = parser.parse_args()
    if not arguments.page and any(os.environ.get(name, "") != value for name, value in ENVIRONMENT.items()):
        os.execve(sys.executable, [sys.executable, "-m", "tests.costs", *sys.argv[1:]], os.environ | ENVIRONMENT)
    if not arguments.page:
        stepping_clock.install()
        import msgspec

        from tests.costs import kept
        from tests.costs.operations import measured

        costs = measured()
        if not sys.stdout.isatty():
            sys.stdout.buffer.write(msgspec.json.encode(costs) + b"\n")
        if not arguments.write:
            for text in kept.differences(kept.read(), costs) or ["each within 2 % of the recorded number"]:
                print(text, file=sys.stderr)
            return
        for name in kept.write(costs, arguments.raised):
            print(f"{name} rose and keeps its number; to record it: {kept.COMMAND} --raise '{name}'", file=sys.stderr)
    from tests.costs.page import FILE, page

    FILE.write_text(page())


if __name__ == "__main__":
    main()
