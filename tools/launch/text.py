"""A rendered replica as text: for people, with the reason behind each value; and as a script that starts it."""

from __future__ import annotations

import shlex
import textwrap
from collections.abc import Iterator

from tools.launch.spec import Argument, LaunchSpec, Variable

COLUMNS = 120
WHY_AT = 52
"""Column of the reasons, where the words before leave room."""


def text_of(spec: LaunchSpec) -> str:
    """For people: nothing of it is left out, and no reason."""
    return "\n".join(_lines(spec)) + "\n"


def title(spec: LaunchSpec) -> str:
    """What is rendered, in one line."""
    return " ".join(f"{spec.pool}/{spec.replica}: {spec.engine}, speculation {_on(spec.speculation)}".split())


def _on(speculation: bool) -> str:
    return "on" if speculation else "off"


def script_of(spec: LaunchSpec) -> str:
    """A shell script for the engine's machine: writes the files, reads the key, becomes the engine."""
    lines = ["#!/bin/sh", f"# {title(spec)}", "set -eu", *_folders(spec)]
    for file in spec.files:
        lines += [f"cat > {shlex.quote(file.path)} <<'END'", file.content + "END"]
    lines += spec.before
    for variable in spec.environment:
        # assigned first: of `export X=$(false)` the shell sees only the export's own success
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
    """A shell takes no comment behind a backslash, and none between two: reasons are substitutions of nothing."""
    if not why:
        yield line + end
        return
    yield f"{line:<{WHY_AT}} `# {_harmless(why)}`{end}" if end else f"{line:<{WHY_AT}}  # {_harmless(why)}"


def _harmless(why: str) -> str:
    """On one line, whatever a name in it has: what stands on the next would be a command."""
    return " ".join(why.split()).replace("`", "'").replace("\\", "/")


def _words(argument: Argument) -> str:
    return " ".join(shlex.quote(word) for word in argument.words)


def _value(variable: Variable) -> str:
    return f'"{variable.value}"' if variable.secret else shlex.quote(variable.value)


def _joined(spec: LaunchSpec) -> str:
    return " \\\n  ".join([shlex.join(spec.program), *map(_words, spec.arguments)])
