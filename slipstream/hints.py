"""Commands that messages tell people to run next: each can be pasted, and concerns the same deployment."""

from __future__ import annotations

import shlex
import shutil
import sys
from pathlib import Path

import click

OPTIONS = {"data": "--data", "config_file": "--config"}
"""What says which deployment a command is about, by the name of its parameter."""


def program() -> str:
    """The name under which a shell finds this program: `slipstream`, or the path by which it was called where that is
    not on the PATH, as after `make up`."""
    called = sys.argv[0]
    if Path(called).name != "slipstream" or "/" not in called or shutil.which("slipstream") is not None:
        return "slipstream"
    return shlex.quote(called)


def command(words: str) -> str:
    """`slipstream keys list --data D`: `words` with the running command's options for its deployment.

    Without a running command, the words alone.
    """
    given: dict[str, str] = {}
    context = click.get_current_context(silent=True)
    while context is not None:
        for name, option in OPTIONS.items():
            if (value := context.params.get(name)) is not None:
                given.setdefault(option, str(value))
        context = context.parent
    return " ".join((program(), words, *(shlex.join(pair) for pair in given.items())))
