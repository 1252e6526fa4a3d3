"""`slipstream logs`: prints the logs of the processes."""

from __future__ import annotations

import contextlib
import sys
import time
from pathlib import Path

import click

from contracts.printable import printable
from slipstream.commands.options import Deployment, deployment_options, load_settings

FOLLOW_INTERVAL_S = 0.2


@click.command()
@click.argument("name", required=False)
@deployment_options
@click.option("-f", "--follow", is_flag=True, help="Keep printing new lines, until Ctrl-C.")
@click.option(
    "-n", "--lines", default=20, show_default=True, type=click.IntRange(min=0), help="Number of lines from the end."
)
def logs(name: str | None, deployment: Deployment, follow: bool, lines: int) -> None:
    """Print the logs of process NAME, or of all processes.

    With several logs, each line begins with the name of its process. A NAME without a number means all processes of
    that kind: `slipstream logs gateway`.
    """
    from contracts.errors import ConfigError
    from infra.local.log_file import tail

    folder = load_settings(deployment.config_file, local__data=deployment.data).data
    known = {file.stem: file for file in sorted(folder.logs.glob("*.log"))}
    chosen = {stem: file for stem, file in known.items() if name is None or stem == name or stem.startswith(f"{name}-")}
    if not chosen:
        names = ", ".join(known) or f"none in {folder.logs}"
        raise ConfigError(f"no log called {name!r}; logs: {names}" if name else f"no logs in {folder.logs} yet")
    named = len(chosen) > 1
    positions = {}
    for stem, file in chosen.items():
        positions[stem] = file.stat().st_size
        for line in tail(file, lines, positions[stem]):
            print(f"{stem}: {printable(line)}" if named else printable(line))
    if follow:
        _follow(chosen, positions, named=named)


def _follow(files: dict[str, Path], positions: dict[str, int], *, named: bool) -> None:
    try:
        while True:
            for name, file in files.items():
                for line in _added(file, positions, name):
                    print(f"{name}: {printable(line)}" if named else printable(line))
            sys.stdout.flush()
            time.sleep(FOLLOW_INTERVAL_S)
    except KeyboardInterrupt:
        return


def _added(file: Path, positions: dict[str, int], name: str) -> list[str]:
    """Whole lines added since the last call. A file that shrank was rotated: the rest of the old one comes first."""
    from infra.local.log_file import rotated

    rest = b""
    try:
        with file.open("rb") as stream:
            if stream.seek(0, 2) < positions[name]:
                with contextlib.suppress(FileNotFoundError), rotated(file).open("rb") as old:
                    old.seek(positions[name])
                    rest = old.read()
                positions[name] = 0
            stream.seek(positions[name])
            added = stream.read()
    except FileNotFoundError:
        return []
    whole = added[: added.rfind(b"\n") + 1]
    positions[name] += len(whole)
    return [line for part in (rest, whole) for line in part.decode(errors="replace").splitlines()]
