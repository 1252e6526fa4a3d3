"""Recorded decode steps: padding changes nothing, and what is recorded is reused."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from engines.embedded.engine import Engine
from engines.embedded.graphs import Decoded, DecodeGraphs, page_bucket, sequence_bucket
from engines.embedded.runner import Runner
from tests.engines.embedded.tiny import drain, finish, make_engine, request


class Again:
    """Replays by calling the function once more: the buckets and the padding without CUDA."""

    def __init__(self) -> None:
        self.recorded = self.replayed = 0

    def record(self, function: Callable[[], Decoded]) -> Callable[[], Decoded]:
        self.recorded += 1
        function()

        def replay() -> Decoded:
            self.replayed += 1
            return function()

        return replay


def with_graphs(engine: Engine) -> tuple[Engine, Again]:
    capture = Again()
    runner = engine._runner
    graphs = DecodeGraphs(runner._model, runner._store, capture)
    engine._runner = Runner(runner._model, runner._store, (), graphs)
    return engine, capture


def texts(engine: Engine, seed: int) -> dict[tuple[str, int], list[int]]:
    source = random.Random(seed)
    wanted = [
        request(
            f"r{at}",
            [source.randrange(5, 2048) for _ in range(source.randrange(1, 50))],
            max_tokens=source.randrange(1, 50),
            choices=source.choice((1, 1, 3)),
            temperature=source.choice((0.0, 0.0, 0.8)),
            seed=at,
            logprobs=0,
        )
        for at in range(14)
    ]
    return {k: [e.id for delta in deltas for e in delta.logprobs] for k, deltas in finish(engine, *wanted).items()}


@pytest.mark.parametrize("settings", [{}, {"max_batch_tokens": 24, "pages": 60, "output_reserve": 0.0}])
def test_padded_steps_give_the_same_tokens(tiny_model: Path, settings: dict[str, Any]) -> None:
    engine, capture = with_graphs(make_engine(tiny_model, **settings))
    assert texts(engine, 4) == texts(make_engine(tiny_model, **settings), 4)
    assert capture.replayed > 3 * capture.recorded > 0
    assert (engine.scheduler.preemptions > 0) == bool(settings)


def test_padding_touches_no_page_that_can_be_had(tiny_model: Path) -> None:
    engine, _ = with_graphs(make_engine(tiny_model, pages=64))
    store = engine.store
    assert store.pages.shape[1] == store.total_pages + 1
    for at in range(3):  # three sequences in a bucket of four
        engine.submit(request(f"r{at}", range(5 + at, 30 + at), max_tokens=6))
    before = store.pages[:, : store.total_pages].clone()
    drain(engine)
    changed = (store.pages[:, : store.total_pages] != before).flatten(2).any(-1).any(0).nonzero().flatten().tolist()
    kept = {node.page for node in engine.cache._nodes if node is not None}
    assert kept <= set(changed)
    assert len(changed) == 3 * 8  # 30 computed tokens each, in pages of four
    assert store.pages[:, store.spare_page].any()


def test_one_recording_serves_a_whole_bucket(tiny_model: Path) -> None:
    engine, capture = with_graphs(make_engine(tiny_model))
    for count in (5, 6, 7, 8):
        finish(engine, *[request(f"{count}.{at}", [at + 5], max_tokens=4) for at in range(count)])
    graphs = engine._runner._graphs
    assert graphs is not None
    assert list(graphs._recorded) == [(8, 8)]
    assert capture.recorded == 1


def test_buckets_are_never_too_small_nor_twice_too_large() -> None:
    for count in range(1, 1025):
        assert count <= sequence_bucket(count) < max(2 * count, 9)
    assert [page_bucket(pages) for pages in (1, 8, 9, 100)] == [8, 8, 16, 128]
