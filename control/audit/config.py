"""Settings of the audit log's record outside the database."""

from __future__ import annotations

from typing import Annotated

import msgspec

from contracts.fixed import Fixed


class AuditConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """File and interval of the audit log's recorded heads, which `slipstream console audit verify` compares."""

    heads_folder: str | None = None
    """Folder of `heads.jsonl`. Unset: `audit` in the data folder. Choose a folder in which the database's owners cannot
    write, such as a mount from another machine; otherwise it proves nothing against them."""
    heads_every_s: Fixed[Annotated[float, msgspec.Meta(ge=60, le=604_800)]] = 86_400.0
    """Interval between two records. A worker also writes one when it starts. Rows after the last record can be removed
    without detection."""
