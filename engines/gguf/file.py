"""Reads the header of a GGUF file, with its metadata and the position of each tensor, without weights or numpy.

The `gguf` package makes two numpy views of every token and merge. With a vocabulary of 49,152 it takes nearly three
CPU seconds in each process that needs the model's context; this module takes a hundredth of a second. The package
decodes the tensors' blocks (`engines/embedded/models/gguf_checkpoint.py`).
"""

from __future__ import annotations

import mmap
import struct
from pathlib import Path
from typing import Any, BinaryIO

import msgspec

from contracts.errors import ConfigError
from contracts.printable import excerpt

MAGIC = b"GGUF"
VERSIONS = (2, 3)
SUFFIX = ".gguf"
MAX_ENTRIES = 1 << 24
"""Limit of a list's length and of the number of lists; a file with more is broken."""
MAX_DIMENSIONS = 4
NAME_CHARACTERS = 128
"""Limit for the names of entries and tensors, and for names in entries. The format allows tensor names half of it."""
STRING, ARRAY = 8, 9
_NUMBERS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}


def is_gguf(path: Path) -> bool:
    """Whether a model's path is that of a GGUF file and not of a folder."""
    return path.suffix.lower() == SUFFIX and not path.is_dir()


class BlockFormat(msgspec.Struct, frozen=True):
    """A number format of tensors, which are stored in blocks."""

    name: str
    elements: int
    """Numbers in a block."""
    size_bytes: int
    """Bytes of a block."""


FORMATS = {
    0: BlockFormat("F32", 1, 4),
    1: BlockFormat("F16", 1, 2),
    2: BlockFormat("Q4_0", 32, 18),
    3: BlockFormat("Q4_1", 32, 20),
    6: BlockFormat("Q5_0", 32, 22),
    7: BlockFormat("Q5_1", 32, 24),
    8: BlockFormat("Q8_0", 32, 34),
    12: BlockFormat("Q4_K", 256, 144),
    13: BlockFormat("Q5_K", 256, 176),
    14: BlockFormat("Q6_K", 256, 210),
    30: BlockFormat("BF16", 1, 2),
}
"""Supported formats by their numbers in a file."""
OTHERS = {
    10: "Q2_K", 11: "Q3_K", 16: "IQ2_XXS", 17: "IQ2_XS", 18: "IQ3_XXS", 19: "IQ1_S", 20: "IQ4_NL", 21: "IQ3_S",
    22: "IQ2_S", 23: "IQ4_XS", 29: "IQ1_M", 34: "TQ1_0", 35: "TQ2_0", 39: "MXFP4",
}  # fmt: skip
"""Names of unsupported formats."""


class TensorPlace(msgspec.Struct, frozen=True):
    """The shape, format and position of one tensor of a file."""

    shape: tuple[int, ...]
    """Outermost dimension first, like PyTorch's; the file has the reverse order."""
    made: BlockFormat
    start: int
    """Offset of its first byte in the file."""
    size_bytes: int


class _List(msgspec.Struct, frozen=True):
    """Position of a list that has not been read yet."""

    kind: int
    count: int
    start: int


class GgufFile:
    """Metadata and tensor positions of one file. Create it with `read`."""

    def __init__(self, path: Path, metadata: dict[str, Any], tensors: dict[str, TensorPlace]) -> None:
        self.path = path
        self.tensors = tensors
        """Tensors by their names in the file."""
        self._metadata = metadata

    @classmethod
    def read(cls, path: Path) -> GgufFile:
        """Read the header. Raises ConfigError for a broken or truncated file and for a tensor of an unsupported
        format."""
        try:
            with path.open("rb") as file:
                return _Head(path, file).read()
        except OSError as error:
            raise ConfigError(f"{path}: cannot be read: {error.strerror}") from None
        except (struct.error, ValueError, OverflowError) as error:
            raise ConfigError(f"{path}: the GGUF file is incomplete or broken: {error}; download it again") from None

    def value(self, name: str, kind: type | tuple[type, ...], default: Any = None) -> Any:
        """The value of one entry, or `default` if it is missing. Raises ConfigError for a value of another type."""
        found = self._metadata.get(name, default)
        if found is not default and (not isinstance(found, kind) or (isinstance(found, bool) and kind is not bool)):
            raise ConfigError(f"{self.path}: {name} has an unexpected type ({type(found).__name__})")
        return found

    def text(self, name: str) -> str | None:
        """The text of one entry, or None if it is missing."""
        found: str | None = self.value(name, str)
        return found

    def name(self, name: str) -> str | None:
        """Like `text`, for a name that errors may quote. Raises ConfigError for a text that is not a name."""
        found = self.text(name)
        if found is not None and not _is_name(found):
            raise ConfigError(f"{self.path}: {name} is not a name: {excerpt(found)}; download the file again")
        return found

    def entries(self, name: str, kind: type) -> list[Any]:
        """Read one list entry, [] if it is missing. Raises ConfigError for items of another type than `kind`."""
        found: _List | None = self.value(name, _List)
        if found is None:
            return []
        try:
            with self.path.open("rb") as file:
                items = _Head(self.path, file).entries(found)
        except OSError as error:
            raise ConfigError(f"{self.path}: cannot be read: {error.strerror}") from None
        except (struct.error, ValueError, OverflowError) as error:
            raise ConfigError(f"{self.path}: {name}: {error}; download the file again") from None
        if any(type(item) is not kind for item in items):
            raise ConfigError(f"{self.path}: {name} must be a list of {kind.__name__}; download the file again")
        return items

    def names(self, start: str) -> list[str]:
        """Names of entries that begin with `start`."""
        return [name for name in self._metadata if name.startswith(start)]


class _Head:
    """A position in the header of one file."""

    def __init__(self, path: Path, file: BinaryIO) -> None:
        self._path = path
        self._bytes = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        self._at = 0

    def read(self) -> GgufFile:
        if self._bytes[:4] != MAGIC:
            raise ConfigError(f"{self._path}: not a GGUF file (it does not begin with GGUF)")
        self._at = 4
        version = self._number("I")
        if version not in VERSIONS:
            raise ConfigError(
                f"{self._path}: GGUF version {version & 0xFFFF or version >> 24}, or big-endian, is not supported; "
                f"supported: versions {' and '.join(map(str, VERSIONS))}, little-endian"
            )
        tensors, entries = self._count("Q"), self._count("Q")
        metadata = {self._name(): self._value(self._number("I")) for _ in range(entries)}
        described = [self._tensor() for _ in range(tensors)]
        alignment = metadata.get("general.alignment", 32)
        if not isinstance(alignment, int) or alignment < 1:
            raise ValueError("general.alignment is not a positive whole number")
        first = -(-self._at // alignment) * alignment
        placed = {name: self._placed(name, shape, kind, first + offset) for name, shape, kind, offset in described}
        return GgufFile(self._path, metadata, placed)

    def entries(self, found: _List) -> list[Any]:
        self._at = found.start
        if found.kind == STRING:
            return [self._string() for _ in range(found.count)]
        if found.kind == ARRAY:
            raise ValueError("a list of lists")
        return list(struct.unpack_from(f"<{found.count}{_NUMBERS[found.kind]}", self._bytes, self._at))

    def _value(self, kind: int) -> Any:
        if kind == STRING:
            return self._string()
        if kind != ARRAY:
            return self._number(self._code(kind))
        inner, count = self._number("I"), self._count("Q")
        found = _List(inner, count, self._at)
        if inner == STRING:
            # skip the strings without decoding them
            unpack, data, at = struct.Struct("<Q").unpack_from, self._bytes, self._at
            for _ in range(count):
                (length,) = unpack(data, at)
                at += 8 + length
            self._at = at
        elif inner == ARRAY:
            raise ValueError("a list of lists")
        else:
            self._at += count * struct.calcsize(f"<{self._code(inner)}")
        if self._at > len(self._bytes):
            raise ValueError("the file ends within a list")
        return found

    def _tensor(self) -> tuple[str, tuple[int, ...], int, int]:
        name, dimensions = self._name(), self._number("I")
        if dimensions > MAX_DIMENSIONS:
            raise ValueError(f"{name} has {dimensions} dimensions")
        shape = tuple(self._count("Q") for _ in range(dimensions))[::-1]
        return name, shape, self._number("I"), self._number("Q")

    def _placed(self, name: str, shape: tuple[int, ...], kind: int, start: int) -> TensorPlace:
        made = FORMATS.get(kind)
        if made is None:
            raise ConfigError(
                f"{self._path}: {name} has the format {OTHERS.get(kind, f'number {kind}')}, which is not supported; "
                f"supported: {', '.join(one.name for one in FORMATS.values())}. Give a file in one of these "
                "formats, or serve this one by llama.cpp's server, as "
                "a pool of driver openai"
            )
        elements = 1
        for side in shape:
            elements *= side
        if elements % made.elements or (shape and shape[-1] % made.elements):
            raise ValueError(f"{name} has rows of {shape[-1] if shape else 1} in blocks of {made.elements}")
        size = elements // made.elements * made.size_bytes
        if start + size > len(self._bytes):
            raise ValueError(f"the file ends within {name}")
        return TensorPlace(shape, made, start, size)

    def _number(self, code: str) -> Any:
        (found,) = struct.unpack_from(f"<{code}", self._bytes, self._at)
        self._at += struct.calcsize(f"<{code}")
        return found

    def _count(self, code: str) -> int:
        found: int = self._number(code)
        if found > MAX_ENTRIES:
            raise ValueError(f"{found} entries")
        return found

    def _code(self, kind: int) -> str:
        code = _NUMBERS.get(kind)
        if code is None:
            raise ValueError(f"a value has the unknown type {kind}")
        return code

    def _name(self) -> str:
        name = self._string()
        if not _is_name(name):
            raise ValueError(f"no name: {excerpt(name)}")
        return name

    def _string(self) -> str:
        length = self._number("Q")
        end = self._at + length
        if end > len(self._bytes):
            raise ValueError("the file ends within a text")
        text = self._bytes[self._at : end].decode()
        self._at = end
        return text


def _is_name(text: str) -> bool:
    return len(text) <= NAME_CHARACTERS and text.isprintable()
