"""What is rendered of one replica: a command, the files and variables it needs, and the reason for each value."""

from __future__ import annotations

from typing import Generic, TypeVar

import msgspec

Value = TypeVar("Value")


class Reasoned(msgspec.Struct, Generic[Value], frozen=True):
    """A value, and why it is that one."""

    value: Value
    why: str


class Argument(msgspec.Struct, frozen=True):
    """One option of a command line."""

    name: str
    """As the engine writes it, `--tp-size`; or a word that stands without one."""
    values: tuple[str, ...] = ()
    why: str = ""
    """Empty: the setting says it."""

    @property
    def words(self) -> tuple[str, ...]:
        """As they stand on the command line."""
        return (self.name, *self.values)


class LaunchFile(msgspec.Struct, frozen=True):
    """A file on the engine's machine. Holds no secret."""

    path: str
    content: str


class Variable(msgspec.Struct, frozen=True):
    """An environment variable that the engine is started with."""

    name: str
    value: str
    """As shell: a literal, or where a secret is read from (`$(cat …)`), never the secret."""
    why: str = ""
    secret: bool = False
    """`value` is a command that reads it."""


class LaunchSpec(msgspec.Struct, frozen=True):
    """One replica in one variant."""

    replica: str
    pool: str
    engine: str
    """Name and release: `SGLang 0.5.23`."""
    speculation: bool
    program: tuple[str, ...]
    """The words before the options."""
    arguments: tuple[Argument, ...]
    files: tuple[LaunchFile, ...] = ()
    environment: tuple[Variable, ...] = ()
    before: tuple[str, ...] = ()
    """Lines of shell that must have run on the engine's machine: they put a key where the engine reads it."""
    key_file: str = ""
    """What `before` writes; empty: nothing."""
    notes: tuple[str, ...] = ()
    """What is worth knowing and stops nothing."""

    @property
    def folders(self) -> tuple[str, ...]:
        """Folders on the engine's machine that something is written into: they may not be there yet."""
        written = (*(file.path for file in self.files), *filter(None, (self.key_file,)))
        return tuple(dict.fromkeys(path.rpartition("/")[0] for path in written))

    @property
    def command(self) -> tuple[str, ...]:
        """Every word of it."""
        return (*self.program, *(word for argument in self.arguments for word in argument.words))
