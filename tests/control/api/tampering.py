"""What somebody with the owner's password could do to the audit log, and a head noted before."""

from __future__ import annotations

from pathlib import Path

from control.audit.heads import current_head, note
from storage.engine import connect
from tests.databases import as_owner

# Each row again through the table's own chain: numbers and times are its own, all hashes agree.
REWRITE = """
CREATE TEMPORARY TABLE kept AS SELECT * FROM gateway.audit_log WHERE id >= {from_row} ORDER BY id;
DELETE FROM gateway.audit_log WHERE id >= {from_row};
ALTER TABLE gateway.audit_log ENABLE TRIGGER USER;
INSERT INTO gateway.audit_log (actor_kind, actor_name, action, subject_kind, subject_id)
SELECT actor_kind, 'somebody else', action, subject_kind, subject_id FROM kept ORDER BY id;
"""


async def tamper(url: str, *statements: str) -> None:
    """Run them with the triggers off."""
    owner = await connect(as_owner(url))
    await owner.execute("ALTER TABLE gateway.audit_log DISABLE TRIGGER USER")
    for statement in statements:
        await owner.execute(statement)
    await owner.execute("ALTER TABLE gateway.audit_log ENABLE TRIGGER USER")
    await owner.close()


async def rewrite(url: str, *, from_row: int) -> None:
    """Another history from that row on, whole in itself."""
    await tamper(url, REWRITE.format(from_row=from_row))


async def note_now(url: str, folder: Path) -> None:
    connection = await connect(url)
    head = await current_head(connection)
    assert head is not None
    note(folder, head)
    await connection.close()
