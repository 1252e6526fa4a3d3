"""Reads an adapter's files, which may come from a tenant: only regular files of a limited size in the allowed folder.

The checked file is the one that is read, even if the folder changes meanwhile.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path

from contracts.errors import InvalidField

CHUNK_BYTES = 1 << 24


class AdapterFiles:
    """Files of one adapter. folder: the adapter's folder. root: the folder that must contain all of its files, after
    links are resolved; empty for the adapter's own folder."""

    def __init__(self, folder: Path, root: str = "") -> None:
        """Raises InvalidField for a folder outside root."""
        self._folder = folder
        try:
            self._within, resolved = (Path(path).resolve() for path in (root or folder, folder))
        except (ValueError, RuntimeError) as error:
            raise InvalidField(f"{str(folder)!r}: no path of a folder: {error}", param="lora_path") from None
        if not resolved.is_relative_to(self._within):
            raise InvalidField(f"{folder}: adapters must lie under {root} (engine.lora.root)", param="lora_path")

    def read(self, name: str, most_bytes: int) -> bytes:
        """Read a file of the folder. Raises InvalidField that names the file if it cannot be read, is not a regular
        file, has more than `most_bytes`, or is a link out of the allowed folder."""
        path = self._folder / name
        try:
            # without O_NONBLOCK, opening a pipe without a writer would block forever
            file = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError as error:
            raise InvalidField(f"{path}: cannot be read: {error.strerror}; give a PEFT folder", param=name) from None
        try:
            self._require_ours(path, name, file)
            status = os.fstat(file)
            if not stat.S_ISREG(status.st_mode):
                raise InvalidField(f"{path}: must be a plain file", param=name)
            read = bytearray()
            while len(read) <= most_bytes:
                chunk = os.read(file, min(CHUNK_BYTES, most_bytes + 1 - len(read)))
                if not chunk:
                    return bytes(read)
                read += chunk
            size = max(status.st_size, len(read))
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
