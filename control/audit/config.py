"""Settings of the audit log's record outside the database."""

from __future__ import annotations

from typing import Annotated

import msgspec

from contracts.fixed import Fixed


class AuditConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """File and interval of the audit log's recorded heads, which `slipstream console audit verify` compares."""

    heads_folder: str | None = None
    """Folder of `heads.jsonl`; unset: `audit` in the data folder. Put it where those who own the database cannot write,
    such as a mount of another machine: only then does it prove anything against them."""
    heads_every_s: Fixed[Annotated[float, msgspec.Meta(ge=60, le=604_800)]] = 86_400.0
    """Seconds between two notes; a worker also makes one when it starts. What is newer than the last note can be cut
    off unseen."""
