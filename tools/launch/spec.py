"""The rendered launch of one replica: a command, its files and variables, and the reason for each value."""

from __future__ import annotations

from typing import Generic, TypeVar

import msgspec

Value = TypeVar("Value")


class Reasoned(msgspec.Struct, Generic[Value], frozen=True):
    """A value and its reason."""

    value: Value
    why: str


class Argument(msgspec.Struct, frozen=True):
    """One option of a command line."""

    name: str
    """The engine's option, such as `--tp-size`, or a word that belongs to none."""
    values: tuple[str, ...] = ()
    why: str = ""
    """Empty if a setting is the reason."""

    @property
    def words(self) -> tuple[str, ...]:
        """The words of the option on the command line."""
        return (self.name, *self.values)


class LaunchFile(msgspec.Struct, frozen=True):
    """A file on the engine's machine. Holds no secret."""

    path: str
    content: str


class Variable(msgspec.Struct, frozen=True):
    """An environment variable that the engine is started with."""

    name: str
    value: str
    """Shell text: a literal, or a command that reads a secret (`$(cat …)`), never the secret."""
    why: str = ""
    secret: bool = False
    """Whether `value` is a command that reads a secret."""


class LaunchSpec(msgspec.Struct, frozen=True):
    """One replica, with drafts or without."""

    replica: str
    pool: str
    engine: str
    """Name and release, such as `SGLang 0.5.23`."""
    speculation: bool
    program: tuple[str, ...]
    """The words before the options."""
    arguments: tuple[Argument, ...]
    files: tuple[LaunchFile, ...] = ()
    environment: tuple[Variable, ...] = ()
    before: tuple[str, ...] = ()
    """Shell lines to run first on the engine's machine: they put a key where the engine reads it."""
    key_file: str = ""
    """The file that `before` writes; empty if it writes none."""
    notes: tuple[str, ...] = ()
    """Remarks that do not prevent the launch."""

    @property
    def folders(self) -> tuple[str, ...]:
        """Folders on the engine's machine that files are written to; they may not exist yet."""
        written = (*(file.path for file in self.files), *filter(None, (self.key_file,)))
        return tuple(dict.fromkeys(path.rpartition("/")[0] for path in written))

    @property
    def command(self) -> tuple[str, ...]:
        """All words of the command line."""
        return (*self.program, *(word for argument in self.arguments for word in argument.words))
