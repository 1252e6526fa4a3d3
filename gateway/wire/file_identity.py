"""Which file a gap is in, so that all requests of one file can go where its prompts are kept.

A client that names the file is believed. Of another the head of the text is taken: its first whole lines, which stay
while somebody types further down. Never the suffix: what stands behind the cursor is another with every jump.
"""

from __future__ import annotations

from gateway.wire.digest import digest_of

HEAD_CHARACTERS = 1_024
"""Enough to tell files apart that begin with the same licence."""


def file_identity(salt: str, session: str, path: str, prefix: str) -> bytes:
    """A digest that tells nothing of the file; empty where nothing names it: the cursor is in the first line.

    salt: the organization's, which nobody else knows. session: what the client names its user by; two users' files of
    one path are seldom the same, and where they are the router finds what they share. path: as the client names it;
    empty: it does not. prefix: all text before the cursor that the client has sent.
    """
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
