"""The life of a batch, whatever happens in which order: pure, against a worker that dies between any two steps."""

from __future__ import annotations

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from control.batches.machine import (
    CANCELLABLE,
    UNFINISHED,
    BatchStatus,
    Standing,
    Step,
    end_of,
    next_step,
)
from tests.examples import examples

NEXT = {
    BatchStatus.VALIDATING: {BatchStatus.IN_PROGRESS, BatchStatus.FAILED, BatchStatus.CANCELLING},
    BatchStatus.IN_PROGRESS: {BatchStatus.FINALIZING, BatchStatus.CANCELLING},
    BatchStatus.FINALIZING: {BatchStatus.COMPLETED, BatchStatus.EXPIRED},
    BatchStatus.CANCELLING: {BatchStatus.CANCELLED},
}
"""The statuses that may follow each; all others are ends."""
EVENTS = st.lists(st.sampled_from(["work", "killed", "cancel", "expire"]), max_size=40)


class World:
    """What is durable: the standing, and the lines with a result. A killed worker has done a part of its step."""

    def __init__(self, total: int, *, valid: bool) -> None:
        self.size = total
        self.valid = valid
        self.standing = Standing(BatchStatus.VALIDATING, 0, 0, False)
        self.results: dict[int, str] = {}
        self.files: list[tuple[str, int]] = []
        self.window_over = False
        self.seen = [BatchStatus.VALIDATING]

    def become(self, status: BatchStatus, **changes: object) -> None:
        if status is not self.standing.status:
            assert status in NEXT[self.standing.status]
            self.seen.append(status)
        self.standing = msgspec.structs.replace(self.standing, status=status, **changes)

    def result(self, line: int, of: str) -> None:
        """As the table's key has it: a line that has a result keeps it."""
        self.results.setdefault(line, of)
        self.standing = msgspec.structs.replace(self.standing, results=len(self.results))

    def read(self) -> Standing:
        running = self.standing.status is BatchStatus.IN_PROGRESS
        return msgspec.structs.replace(self.standing, expired=self.window_over) if running else self.standing

    def work(self, *, whole: bool) -> None:
        """The next step, or its first part."""
        standing = self.read()
        match next_step(standing):
            case Step.VALIDATE if not self.valid:
                self.become(BatchStatus.FAILED)
            case Step.VALIDATE:
                self.become(BatchStatus.IN_PROGRESS, total=self.size)
            case Step.RUN:
                left = [line for line in range(self.size) if line not in self.results]
                for line in left if whole else left[: (len(left) + 1) // 2]:
                    self.result(line, "answer")
            case Step.FINALIZE:
                self.become(BatchStatus.FINALIZING, expired=standing.results < standing.total)
            case Step.GIVE_UP_REST:
                left = [line for line in range(standing.total) if line not in self.results]
                for line in left if whole else left[: (len(left) + 1) // 2]:
                    self.result(line, "given up")
            case Step.WRITE_FILES:
                self.files.append(("the ids of the batch", len(self.results)))
                if whole:
                    self.become(end_of(standing))
            case None:
                assert standing.status not in UNFINISHED

    def cancel(self) -> None:
        if self.standing.status in CANCELLABLE:
            self.become(BatchStatus.CANCELLING)


@given(st.integers(1, 9), st.booleans(), EVENTS)
@examples(5_000, gate=200)
def test_each_line_has_one_result_and_the_batch_ends_once(total: int, valid: bool, events: list[str]) -> None:
    world = World(total, valid=valid)
    first: dict[int, str] = {}
    for event in events:
        match event:
            case "work" | "killed":
                world.work(whole=event == "work")
            case "cancel":
                world.cancel()
            case "expire":
                world.window_over = True
        assert {line: world.results[line] for line in first} == first
        first = dict(world.results)
    for _ in range(8):
        world.work(whole=True)
    standing = world.standing
    assert standing.status not in UNFINISHED
    assert len(world.seen) == len(set(world.seen))
    assert len(world.results) == standing.results == standing.total
    given_up = [line for line, of in world.results.items() if of == "given up"]
    match standing.status:
        case BatchStatus.COMPLETED:
            assert not given_up
        case BatchStatus.EXPIRED:
            assert given_up
            assert world.window_over
        case BatchStatus.CANCELLED:
            assert "cancel" in events
        case BatchStatus.FAILED:
            assert not valid
            assert not standing.total
    if standing.status is not BatchStatus.FAILED:
        assert world.files[-1][1] == standing.total
