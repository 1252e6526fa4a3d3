"""Writes the audit log: who changed what, before and after. The database numbers, dates and chains the rows."""

from __future__ import annotations

import hashlib
from typing import Any
from uuid import UUID

import asyncpg
import msgspec

from storage.actor_kind import ActorKind

INSERT = """
INSERT INTO gateway.audit_log (actor_kind, actor_id, actor_name, admin_key_id, request_id, organization_id,
                               action, subject_kind, subject_id, before, after)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10::jsonb, $11::jsonb)
"""
LONG_TEXT = 256
"""Longest text in characters that is kept whole; names and addresses are not longer."""


class Actor(msgspec.Struct, frozen=True, kw_only=True):
    """The author of a change, as the audit log records it."""

    kind: ActorKind
    name: str
    id: UUID | None = None
    key_id: UUID | None = None
    request_id: str | None = None

    @staticmethod
    def command(account: str, command: str) -> Actor:
        """A person at the command line. account: the operating system's; command: such as `slipstream keys create`."""
        return Actor(kind=ActorKind.COMMAND, name=f"{account} ({command})")

    @staticmethod
    def system(part: str) -> Actor:
        """A process of the deployment. part: its name, such as `slipstream gateway`."""
        return Actor(kind=ActorKind.SYSTEM, name=part)


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """One change. before, after: structs or dicts without secrets; None if the object did not or does not exist."""

    action: str
    """Object and verb, such as `project.create`."""
    subject_id: str
    organization_id: UUID | None
    """The organization that the change concerns; None for the deployment."""
    before: object = None
    after: object = None

    def without_long_texts(self) -> Change:
        """The change, with a digest and the length instead of each long text: the log is kept forever, and repeated
        changes must not fill it."""
        return msgspec.structs.replace(self, before=_abridged(self.before), after=_abridged(self.after))


async def record(connection: asyncpg.Connection[Any], actor: Actor, change: Change) -> None:
    """Append one row, in the caller's transaction and as its last act: the log's lock is held until it commits."""
    await connection.execute(
        INSERT,
        actor.kind.value,
        actor.id,
        actor.name,
        actor.key_id,
        actor.request_id,
        change.organization_id,
        change.action,
        change.action.partition(".")[0],
        change.subject_id,
        _json(change.before),
        _json(change.after),
    )


def _abridged(state: object) -> object:
    def abridged(value: Any) -> Any:
        match value:
            case str() if len(value) > LONG_TEXT:
                digest = hashlib.sha256(value.encode("utf-8", "surrogatepass")).hexdigest()
                return f"({len(value):,} characters, SHA-256 {digest})"
            case dict():
                return {name: abridged(each) for name, each in value.items()}
            case list():
                return [abridged(each) for each in value]
            case _:
                return value

    return None if state is None else abridged(msgspec.to_builtins(state, str_keys=True))


def _json(state: object) -> str | None:
    return None if state is None else msgspec.json.encode(state).decode()
