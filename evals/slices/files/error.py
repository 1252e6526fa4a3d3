"""A file of questions that cannot be read as what it claims to be."""

from __future__ import annotations

from pathlib import Path

from contracts.errors import ConfigError


class SliceFileError(ConfigError):
    """Names the file, the line and the field, so that whoever wrote it finds the place.

    line: from 1; 0 where it is the file itself. field: as the line spells it, `check.answer`; empty: the whole line.
    """

    def __init__(self, file: Path, line: int, field: str, message: str) -> None:
        """message: what is wrong and what would be right."""
        self.file = file
        self.line = line
        self.field = field
        place = f"{file}:{line}" if line else str(file)
        super().__init__(f"{place}: {field}: {message}" if field else f"{place}: {message}", param=field or None)
