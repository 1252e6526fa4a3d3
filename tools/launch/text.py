"""Formats a rendered replica for people, with the reason for each value, and as a script that starts it."""

from __future__ import annotations

import shlex
import textwrap
from collections.abc import Iterator

from tools.launch.spec import Argument, LaunchSpec, Variable

COLUMNS = 120
WHY_AT = 52
"""Column of the reasons, if the words before them leave room."""


def text_of(spec: LaunchSpec) -> str:
    """Text for people, with all that is rendered and every reason."""
    return "\n".join(_lines(spec)) + "\n"


def title(spec: LaunchSpec) -> str:
    """The rendered launch in one line."""
    return " ".join(f"{spec.pool}/{spec.replica}: {spec.engine}, speculation {_on(spec.speculation)}".split())


def _on(speculation: bool) -> str:
    return "on" if speculation else "off"


def script_of(spec: LaunchSpec) -> str:
    """A shell script for the engine's machine that writes the files, reads the key and executes the engine."""
    lines = ["#!/bin/sh", f"# {title(spec)}", "set -eu", *_folders(spec)]
    for file in spec.files:
        lines += [f"cat > {shlex.quote(file.path)} <<'END'", file.content + "END"]
    lines += spec.before
    for variable in spec.environment:
        # assigned first: in `export X=$(false)` the shell sees only the exit status of `export`
        lines += [f"{variable.name}={_value(variable)}", f"export {variable.name}"]
        if variable.secret:
            lines.append(f': "${{{variable.name}:?no key was read}}"')
    return "\n".join([*lines, f"exec {_joined(spec)}"]) + "\n"


def _folders(spec: LaunchSpec) -> Iterator[str]:
    for folder in spec.folders:
        yield f"mkdir -p {shlex.quote(folder or '/')}"


def _lines(spec: LaunchSpec) -> Iterator[str]:
    yield f"# {title(spec)}"
    for note in spec.notes:
        yield from textwrap.wrap(note, COLUMNS, initial_indent="# - ", subsequent_indent="#   ")
    if spec.folders:
        yield ""
        yield from _folders(spec)
    for file in spec.files:
        yield ""
        yield f"# {file.path}"
        yield file.content.rstrip("\n")
    yield ""
    yield from spec.before
    for variable in spec.environment:
        yield from _reasoned(f"export {variable.name}={_value(variable)}", variable.why, "")
    if not spec.arguments:
        yield shlex.join(spec.program)
        return
    yield f"{shlex.join(spec.program)} \\"
    for argument in spec.arguments[:-1]:
        yield from _reasoned(f"  {_words(argument)}", argument.why, " \\")
    yield from _reasoned(f"  {_words(spec.arguments[-1])}", spec.arguments[-1].why, "")


def _reasoned(line: str, why: str, end: str) -> Iterator[str]:
    """A shell allows no comment after or between backslashes, so there a reason is an empty command substitution."""
    if not why:
        yield line + end
        return
    yield f"{line:<{WHY_AT}} `# {_harmless(why)}`{end}" if end else f"{line:<{WHY_AT}}  # {_harmless(why)}"


def _harmless(why: str) -> str:
    """The reason on one line, even if it quotes a name with a line end: the next line would run as a command."""
    return " ".join(why.split()).replace("`", "'").replace("\\", "/")


def _words(argument: Argument) -> str:
    return " ".join(shlex.quote(word) for word in argument.words)


def _value(variable: Variable) -> str:
    return f'"{variable.value}"' if variable.secret else shlex.quote(variable.value)


def _joined(spec: LaunchSpec) -> str:
    return " \\\n  ".join([shlex.join(spec.program), *map(_words, spec.arguments)])
