"""When requests for a model wait, as this gateway's own tell."""

from __future__ import annotations

import pytest

from gateway.serving.queue_watch import REMEMBERED_S, QueueWatch


class Clock:
    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


def test_a_request_that_waits_too_long_says_so_before_it_has_its_place() -> None:
    clock = Clock()
    watch = QueueWatch(clock)
    watch.began("m", "a")
    clock.now_s += 0.4
    watch.began("m", "b")
    assert not watch.busy("m", 0.5)
    clock.now_s += 0.2
    assert watch.busy("m", 0.5)
    assert not watch.busy("other", 0.5)
    watch.ended("m", "a", None)
    assert not watch.busy("m", 0.5), "the oldest that is left waits for 0.2 s"


@pytest.mark.parametrize(("waited_s", "busy"), [(0.0, False), (0.5, False), (0.6, True), (float("inf"), True)])
def test_the_last_wait_tells_for_a_moment(waited_s: float, busy: bool) -> None:
    clock = Clock()
    watch = QueueWatch(clock)
    watch.began("m", "a")
    watch.ended("m", "a", waited_s)
    assert watch.busy("m", 0.5) is busy
    clock.now_s += REMEMBERED_S
    assert not watch.busy("m", 0.5)


def test_a_place_that_was_had_at_once_ends_it() -> None:
    watch = QueueWatch(Clock())
    for lease_id, waited_s in (("a", 3.0), ("b", 0.0)):
        watch.began("m", lease_id)
        watch.ended("m", lease_id, waited_s)
    assert not watch.busy("m", 0.5)
    assert not watch._waiting
