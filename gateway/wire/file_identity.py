"""Identifies a gap's file, so that all requests of one file can go to the engine that caches its prompts.

A client's file name is believed. Without one, the head of the text counts: its first whole lines, which stay while the
user types further down. Never the suffix: it changes with every jump of the cursor.
"""

from __future__ import annotations

from gateway.wire.digest import digest_of

HEAD_CHARACTERS = 1_024
"""Enough to tell files apart that begin with the same licence."""


def file_identity(salt: str, session: str, path: str, prefix: str) -> bytes:
    """A digest that reveals nothing about the file; empty without an identity: the cursor is in the first line. salt:
    the organization's secret. session: the client's name for its user; two users' files of one path are seldom the
    same, and if they are, the router finds their common prefix. path: as the client names it; empty: none. prefix: all
    text before the cursor that the client has sent."""
    name = path or _head(prefix)
    if not name:
        return b""
    return digest_of(("path" if path else "head", session, name), salt.encode()[:64])


def _head(prefix: str) -> str:
    """Its first whole lines: the cursor's own changes with every keystroke."""
    head = prefix[:HEAD_CHARACTERS]
    whole = head[: head.rfind("\n") + 1]
    if not whole and len(prefix) >= HEAD_CHARACTERS:
        return head  # one long line
    return whole if whole.strip() else ""
