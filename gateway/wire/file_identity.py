"""Identifies a gap's file, so that all requests of one file can go to the engine that caches its prompts.

The identity is the client's file name. Without one, it is the head of the text: its first whole lines, which stay while
the user types further down. The suffix never counts, because it changes with every jump of the cursor.
"""

from __future__ import annotations

from gateway.wire.digest import digest_of

HEAD_CHARACTERS = 1_024
"""Enough to distinguish files that begin with the same licence."""


def file_identity(salt: str, session: str, path: str, prefix: str) -> bytes:
    """A digest that reveals nothing about the file; empty if no path is known and the cursor is in the first line.
    salt: the organization's secret. session: the client's name for its user; two users' files with one path are seldom
    the same, and if they are, the router finds their common prefix. path: the client's name of the file, or empty.
    prefix: all text before the cursor that the client has sent."""
    name = path or _head(prefix)
    if not name:
        return b""
    return digest_of(("path" if path else "head", session, name), salt.encode()[:64])


def _head(prefix: str) -> str:
    """The first whole lines. The cursor's line changes with every keystroke."""
    head = prefix[:HEAD_CHARACTERS]
    whole = head[: head.rfind("\n") + 1]
    if not whole and len(prefix) >= HEAD_CHARACTERS:
        return head  # one long line
    return whole if whole.strip() else ""
