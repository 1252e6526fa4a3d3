"""The kinds of actors that the audit log knows."""

from __future__ import annotations

from enum import StrEnum


class ActorKind(StrEnum):
    """Kind of a change's author."""

    MEMBER = "member"
    SERVICE_ACCOUNT = "service_account"
    COMMAND = "command"
    """A person at the command line of the deployment's machine."""
    SYSTEM = "system"
    """The deployment itself, by its settings or its schedule."""
