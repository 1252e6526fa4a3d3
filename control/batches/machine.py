"""The life of a batch, as OpenAI names it. Pure: what stands in the database decides the next step alone, so a worker
that takes over after a crash does what its predecessor would have done.

    validating ──> in_progress ──> finalizing ──> completed | expired
        │               │
        ├──> failed     └──> cancelling ──> cancelled
        └──> cancelling

A line has at most one result, and a batch ends only when each line has one: lines that are left when the window ends,
or when the batch is cancelled, get an error. The ids of both files are given with the batch, so a repeated step writes
the same files again.
"""

from __future__ import annotations

from enum import StrEnum

import msgspec


class BatchStatus(StrEnum):
    """OpenAI's names."""

    VALIDATING = "validating"
    IN_PROGRESS = "in_progress"
    FINALIZING = "finalizing"
    CANCELLING = "cancelling"
    COMPLETED = "completed"
    FAILED = "failed"
    EXPIRED = "expired"
    CANCELLED = "cancelled"


UNFINISHED = (BatchStatus.VALIDATING, BatchStatus.IN_PROGRESS, BatchStatus.FINALIZING, BatchStatus.CANCELLING)
CANCELLABLE = (BatchStatus.VALIDATING, BatchStatus.IN_PROGRESS)
CANCEL_ASKED = (BatchStatus.CANCELLING, BatchStatus.CANCELLED)
"""A further request to cancel changes nothing."""


class Step(StrEnum):
    """The next thing that a worker does with a batch."""

    VALIDATE = "validate"
    RUN = "run"
    FINALIZE = "finalize"
    """Every line has a result, or the window is over: the status becomes `finalizing`."""
    GIVE_UP_REST = "give_up_rest"
    """Give each line without a result an error."""
    WRITE_FILES = "write_files"
    """Write both files and end the batch."""


class Standing(msgspec.Struct, frozen=True):
    """A batch as it stands in the database. results: lines that have one. expired: its window ended before it was
    finalized; of a batch that is validated or runs: it has ended now."""

    status: BatchStatus
    total: int
    results: int
    expired: bool


def next_step(standing: Standing) -> Step | None:
    """The next step; None: the batch has ended."""
    match standing.status:
        case BatchStatus.VALIDATING:
            return Step.VALIDATE
        case BatchStatus.IN_PROGRESS:
            return Step.FINALIZE if standing.expired or standing.results == standing.total else Step.RUN
        case BatchStatus.FINALIZING | BatchStatus.CANCELLING:
            return Step.GIVE_UP_REST if standing.results < standing.total else Step.WRITE_FILES
    return None


def end_of(standing: Standing) -> BatchStatus:
    """The status after both files are written."""
    if standing.status is BatchStatus.CANCELLING:
        return BatchStatus.CANCELLED
    return BatchStatus.EXPIRED if standing.expired else BatchStatus.COMPLETED
