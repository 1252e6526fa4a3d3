"""Counts a body's structure before it is decoded, while its bytes arrive.

A decoder makes a Python object of every value and holds the interpreter until it finishes: 8 MB of `[],` take 435 MB
and delay every stream by over a second. The count costs a few fast passes over each chunk.
`tests/hostile/naive_shape.py` is the plain reference version.
"""

from __future__ import annotations

from typing import NamedTuple

from contracts.errors import BodyTooLarge, InvalidJson
from gateway.wire.config import RequestConfig

_OPENING, _CLOSING = b"[{", b"]}"
_NO_BRACKETS = bytes(set(range(256)) - set(_OPENING + _CLOSING))
_LISTS_ONLY = bytes.maketrans(b"{}", b"[]")


class Advice(NamedTuple):
    """Advice for a client whose body holds too much."""

    containers: str = "Send fewer messages, parts or tools."
    values: str = "Send fewer token ids, or the prompt as text."


class BodyShape:
    """The structure of one body, as far as it has arrived. The decoder checks whether the body is valid JSON."""

    __slots__ = ("_advice", "_config", "_containers", "_depth", "_escaped", "_inside", "_values")

    def __init__(self, config: RequestConfig, advice: Advice | None = None) -> None:
        """advice: None for the advice about inference requests."""
        self._config = config
        self._advice = advice or Advice()
        self._containers = 0
        self._values = 0
        self._depth = 0
        self._inside = False
        """Whether the next byte belongs to a string."""
        self._escaped = False
        """Whether the last chunk ended with a backslash inside a string."""

    def feed(self, piece: bytes) -> None:
        """Count the next bytes. Raises BodyTooLarge or InvalidJson as soon as a limit is exceeded."""
        outside = self._outside(piece)
        brackets = outside.translate(_LISTS_ONLY, _NO_BRACKETS)
        self._containers += brackets.count(b"[")
        # the name of a member costs as much as its value
        self._values += outside.count(b",") + outside.count(b":")
        config = self._config
        if self._containers > config.max_containers:
            raise BodyTooLarge(
                f"The body has more than {config.max_containers} objects and lists, which is the limit. "
                f"{self._advice.containers}"
            )
        if self._values + self._containers > config.max_values:
            raise BodyTooLarge(
                f"The body has more than {config.max_values} values, which is the limit. {self._advice.values}"
            )
        self._sink(brackets)

    def end(self) -> None:
        """End the text. The next text counts towards the same limits."""
        self._depth = 0
        self._inside = self._escaped = False

    def _outside(self, piece: bytes) -> bytes:
        """The bytes of a chunk outside strings."""
        if self._escaped and piece:
            piece = piece[1:]
            self._escaped = False
        if b"\\" in piece:
            # pairs first: each remaining backslash begins an escape, and one at the end escapes the next chunk
            piece = piece.replace(rb"\\", b"")
            if piece.endswith(b"\\"):
                piece = piece[:-1]
                self._escaped = True
            piece = piece.replace(rb"\"", b"")
        parts = piece.split(b'"')
        outside = b"".join(parts[self._inside :: 2])
        self._inside ^= len(parts) % 2 == 0
        return outside

    def _sink(self, brackets: bytes) -> None:
        """Follow the depth. This examines at most two brackets for each container."""
        depth = self._depth
        for bracket in brackets:
            if bracket == 0x5B:
                depth += 1
                if depth > self._config.max_depth:
                    raise InvalidJson(
                        f"The body is nested deeper than {self._config.max_depth} levels, which is the limit."
                    )
            elif depth == 0:
                # the decoder stops at this bracket with its own error and never decodes the rest
                break
            else:
                depth -= 1
        self._depth = depth
