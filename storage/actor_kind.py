"""The kinds of actors that the audit log knows."""

from __future__ import annotations

from enum import StrEnum


class ActorKind(StrEnum):
    """Kind of a change's author."""

    MEMBER = "member"
    SERVICE_ACCOUNT = "service_account"
    COMMAND = "command"
    """A person with a shell on the deployment's machine, by the command line."""
    SYSTEM = "system"
    """The deployment itself: what its settings or its schedule bring about."""
