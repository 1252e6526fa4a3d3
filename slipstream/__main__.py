"""The command line: `slipstream …` or `python -m slipstream …`. A ConfigError prints one line and exits with code 2."""

from __future__ import annotations

import sys

import click

from contracts.errors import ConfigError, SlipstreamError
from slipstream.command_line import CommandLine
from slipstream.command_table import LazyCommands


@click.group(
    cls=CommandLine,
    commands=LazyCommands(),
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(package_name="slipstream")
def cli() -> None:
    """Serve language models to many users: one URL, keys, limits, a ledger."""


def main() -> None:
    """Run the command line and exit with its code."""
    try:
        cli(prog_name="slipstream")
    except ConfigError as error:
        _complain(error.message)
        sys.exit(2)
    except SlipstreamError as error:
        _complain(error.message)
        sys.exit(1)


def _complain(message: str) -> None:
    import logging

    from contracts.printable import printable
    from telemetry.log import in_json

    if in_json():
        logging.getLogger("slipstream").error(message)
    else:
        print(f"slipstream: {printable(' '.join(message.split()))}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
