"""The benchmark counts a stream that ends early as cut, and finds a refusal out."""

from __future__ import annotations

from collections import Counter

import pytest

from benchmarks.held_streams import hold, quantile_ms
from tests.fakes.process import fake_engine


async def test_a_stream_that_ends_early_is_cut_and_a_refused_one_is_an_error() -> None:
    async with fake_engine() as engine:
        await engine.control(tokens=8, inter_token_s=0.002)
        held = await hold(engine.port, engine.token, streams=3, tokens=8)
        assert (held.cut, held.tokens) == (0, 24)
        await engine.control(error_after_tokens=4)
        assert (await hold(engine.port, engine.token, streams=3, tokens=8)).cut == 3
        await engine.control(status=429)
        with pytest.raises(RuntimeError, match="429"):
            await hold(engine.port, engine.token, streams=1, tokens=8)


def test_quantiles_of_counted_gaps() -> None:
    gaps = Counter({10: 98, 500: 1, 900: 1})
    assert [quantile_ms(gaps, share) for share in (0.5, 0.98, 0.99, 1.0)] == [1.0, 1.0, 50.0, 90.0]
