"""Reads an adapter's files, which a tenant may have made: only plain files of a bounded size, within the allowed
folder. The checked file is the one that is read, even if the folder changes meanwhile.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path

from contracts.errors import InvalidField

CHUNK_BYTES = 1 << 24


class AdapterFiles:
    """folder: the adapter's. root: folder that must contain all of its files, links resolved; empty: the adapter's own
    folder."""

    def __init__(self, folder: Path, root: str = "") -> None:
        """Raises InvalidField for a folder elsewhere."""
        self._folder = folder
        try:
            self._within, lies = (Path(path).resolve() for path in (root or folder, folder))
        except (ValueError, RuntimeError) as error:
            raise InvalidField(f"{str(folder)!r}: no path of a folder: {error}", param="lora_path") from None
        if not lies.is_relative_to(self._within):
            raise InvalidField(f"{folder}: adapters must lie under {root} (engine.lora.root)", param="lora_path")

    def read(self, name: str, most_bytes: int) -> bytes:
        """A file of the folder. Raises InvalidField that names it when it cannot be read, is no plain file, is too
        large, or is a link that leads elsewhere."""
        path = self._folder / name
        try:
            # opening a pipe without a writer would block forever
            file = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError as error:
            raise InvalidField(f"{path}: cannot be read: {error.strerror}; give a PEFT folder", param=name) from None
        try:
            self._require_ours(path, name, file)
            found = os.fstat(file)
            if not stat.S_ISREG(found.st_mode):
                raise InvalidField(f"{path}: must be a plain file", param=name)
            read = bytearray()
            while len(read) <= most_bytes:
                piece = os.read(file, min(CHUNK_BYTES, most_bytes + 1 - len(read)))
                if not piece:
                    return bytes(read)
                read += piece
            size = max(found.st_size, len(read))
            raise InvalidField(f"{path}: must have at most {most_bytes:,} bytes; it has {size:,}", param=name)
        except OSError as error:
            raise InvalidField(f"{path}: cannot be read: {error.strerror}", param=name) from None
        finally:
            os.close(file)

    def _require_ours(self, path: Path, name: str, file: int) -> None:
        if not Path(f"/proc/self/fd/{file}").readlink().is_relative_to(self._within):
            raise InvalidField(
                f"{path}: must lie under {self._within}, and is a link that leads elsewhere (engine.lora.root sets "
                "where the files of adapters may lie)",
                param=name,
            )
