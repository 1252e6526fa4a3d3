"""Settings of the usage journal and of shipping it to the ledger."""

from __future__ import annotations

from typing import Annotated

import msgspec

from contracts.fixed import Fixed


class MeteringConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The defaults suit one machine and production alike."""

    segment_bytes: Fixed[Annotated[int, msgspec.Meta(ge=4_096, le=4_294_967_296)]] = 67_108_864
    """Size at which the journal starts a new file. A file is deleted once all its records are in the ledger."""
    probe_interval_s: Fixed[Annotated[float, msgspec.Meta(gt=0, le=60)]] = 1.0
    """Interval between write attempts after a disk error. No request is admitted in between."""
    lock_timeout_s: Fixed[Annotated[float, msgspec.Meta(ge=0, le=600)]] = 15.0
    """How long a start waits for the journal folder's lock, for example while a neighbour resolves the journal."""
    batch_rows: Fixed[Annotated[int, msgspec.Meta(ge=1, le=10_000)]] = 500
    """Maximum number of rows sent to the ledger in one statement."""
    ship_interval_s: Fixed[Annotated[float, msgspec.Meta(gt=0, le=60)]] = 0.1
    """How long rows are collected before they are sent; a full batch does not wait."""
    ship_timeout_s: Fixed[Annotated[float, msgspec.Meta(gt=0, le=600)]] = 30.0
    """Time limit of one statement, after which it is retried."""
    retry_max_s: Fixed[Annotated[float, msgspec.Meta(gt=0, le=600)]] = 10.0
    """Longest pause between retries while the database is unreachable. The first pause is 0.1 s, and each one doubles.
    Retries never end."""
    ask_timeout_s: Fixed[Annotated[float, msgspec.Meta(gt=0, le=60)]] = 2.0
    """After a crash: timeout of one query to an engine about an attempt's usage."""
    resolve_timeout_s: Annotated[float, msgspec.Meta(ge=0, le=600)] = 5.0
    """After a crash: time limit for all queries to engines. Attempts without an answer are then recorded as unknown."""
    adopt_after_s: Fixed[Annotated[float, msgspec.Meta(gt=0, le=86_400)]] = 30.0
    """How long a neighbour's journal folder must lie unlocked before this instance resolves and ships it."""
