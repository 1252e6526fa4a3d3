"""The states of a batch, with OpenAI's names. Pure: only the stored state decides the next step, so a worker that takes
over after a crash does what its predecessor would have done.

    validating ──> in_progress ──> finalizing ──> completed | expired
        │               │
        ├──> failed     └──> cancelling ──> cancelled
        └──> cancelling

A line has at most one result, and a batch ends only when each line has one: lines without a result get an error when
the window ends or the batch is cancelled. The ids of both files are chosen with the batch's own, so a repeated step
writes the same files again.
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
"""Statuses in which a further request to cancel changes nothing."""


class Step(StrEnum):
    """A worker's next step with a batch."""

    VALIDATE = "validate"
    RUN = "run"
    FINALIZE = "finalize"
    """Set the status to `finalizing`: every line has a result, or the window has ended."""
    GIVE_UP_REST = "give_up_rest"
    """Give each line without a result an error."""
    WRITE_FILES = "write_files"
    """Write both files and end the batch."""


class Standing(msgspec.Struct, frozen=True):
    """A batch's stored state. results: number of lines with a result. expired: whether its window ended before it was
    finalized; while it is validated or runs, whether the window has ended by now."""

    status: BatchStatus
    total: int
    results: int
    expired: bool


def next_step(standing: Standing) -> Step | None:
    """The next step; None if the batch has ended."""
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
