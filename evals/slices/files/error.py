"""The error of a malformed file of questions."""

from __future__ import annotations

from pathlib import Path

from contracts.errors import ConfigError


class SliceFileError(ConfigError):
    """A malformed file of questions. It names the file, the line and the field.

    line: from 1; 0 for the file itself. field: as in the line, such as `check.answer`; empty for the whole line.
    """

    def __init__(self, file: Path, line: int, field: str, message: str) -> None:
        """message: the fault and the correct form."""
        self.file = file
        self.line = line
        self.field = field
        location = f"{file}:{line}" if line else str(file)
        super().__init__(f"{location}: {field}: {message}" if field else f"{location}: {message}", param=field or None)
