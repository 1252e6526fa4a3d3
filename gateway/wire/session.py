"""Finds the session that a client names for its request: one identity from any harness. Pure.

The first name found counts: an operator's own header, then the header of a coding agent or of a gateway in front, then
the body's (`prompt_cache_key`, or else the user; `Prepared.session`). The client chooses the name, which has a meaning
only within its organization. A header's name is recorded unchanged. A body's name may be an e-mail address, so only a
digest with the organization's salt is recorded, by which a known name can be found.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping
from typing import NamedTuple

from contracts.printable import printable

MAX_CHARACTERS = 128
DIGEST_CHARACTERS = 16
BODY_PREFIX = "body-"
BODY_CHARACTERS = 32


class _Harness(NamedTuple):
    """Headers of one harness. agent: within the session; parent: the agent or session that started this one."""

    session: bytes
    agent: bytes = b""
    parent: bytes = b""


HARNESSES = (
    _Harness(b"x-slipstream-session", b"x-slipstream-agent", b"x-slipstream-parent-session"),
    _Harness(b"x-claude-code-session-id", b"x-claude-code-agent-id", b"x-claude-code-parent-agent-id"),
    # Codex; releases before 0.60 wrote it with an underscore
    _Harness(b"session-id", b"thread-id"),
    _Harness(b"session_id"),
    # OpenCode
    _Harness(b"x-session-id", parent=b"x-parent-session-id"),
    _Harness(b"x-session-affinity", parent=b"x-parent-session-id"),
    _Harness(b"x-dynamo-session-id", parent=b"x-dynamo-parent-session-id"),
)
"""In order of precedence."""


class Session(NamedTuple):
    """Printable names of at most `MAX_CHARACTERS`. agent: None for the session's first. parent: None if unknown."""

    id: str
    agent: str | None = None
    parent: str | None = None


def session_of(headers: Mapping[bytes, bytes], in_body: str = "", salt: str = "") -> Session | None:
    """The session; None if the client names none. headers: by lower-case name. in_body, salt: of `Prepared`."""
    get = headers.get
    for name, agent, parent in HARNESSES:
        if (found := get(name)) and (text := _header(found)):
            own = _header(get(agent, b"")) if agent else ""
            return Session(text, own if own != text and own else None, _header(get(parent, b"")) or None)
    return Session(body_name(in_body, salt)) if in_body else None


def recorded_names(given: str, salt: str) -> tuple[str, str]:
    """The two forms in which a session of an organization may be recorded: a header's and a body's name."""
    return session_name(given), body_name(given, salt)


def body_name(given: str, salt: str) -> str:
    """A body's name in its recorded form. salt: the organization's."""
    digest = hmac.digest(salt.encode(), given.encode("utf-8", "surrogatepass"), "sha256")
    return BODY_PREFIX + digest.hex()[:BODY_CHARACTERS]


def session_name(given: str) -> str:
    """A header's name as it is recorded and searched for: printable; a longer one is its beginning and a digest."""
    text = printable(given[: MAX_CHARACTERS + 1])
    if len(text) <= MAX_CHARACTERS:
        return text
    digest = hashlib.sha256(given.encode("utf-8", "surrogatepass")).hexdigest()[:DIGEST_CHARACTERS]
    return f"{text[: MAX_CHARACTERS - DIGEST_CHARACTERS - 1]}~{digest}"


def _header(value: bytes) -> str:
    return session_name(value.decode("latin-1").strip()) if value else ""
