"""Commands that messages suggest as the next step: each can be pasted and works on the same deployment."""

from __future__ import annotations

import shlex
import shutil
import sys
from pathlib import Path

import click

OPTIONS = {"data": "--data", "config_file": "--config"}
"""The options that select a command's deployment, by parameter name."""


def program() -> str:
    """The name under which a shell finds this program: `slipstream`, or the path by which it was called if that is not
    on the PATH, as after `make up`."""
    called = sys.argv[0]
    if Path(called).name != "slipstream" or "/" not in called or shutil.which("slipstream") is not None:
        return "slipstream"
    return shlex.quote(called)


def command(words: str) -> str:
    """A command such as `slipstream keys list --data D`: `words` with the running command's deployment options.

    Without a running command, it has only the words.
    """
    values: dict[str, str] = {}
    context = click.get_current_context(silent=True)
    while context is not None:
        for name, option in OPTIONS.items():
            if (value := context.params.get(name)) is not None:
                values.setdefault(option, str(value))
        context = context.parent
    return " ".join((program(), words, *(shlex.join(pair) for pair in values.items())))
