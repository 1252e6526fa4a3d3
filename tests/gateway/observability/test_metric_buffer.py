"""Tallies bring prometheus_client to exactly the values that its own methods would have."""

from __future__ import annotations

import asyncio

from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from gateway.observability.metric_buffer import MetricBuffers

BOUNDS = (1 / 128, 0.125, 1.0, 10.0)
VALUES = st.one_of(
    st.sampled_from([0.0, *BOUNDS, 11.0]), st.integers(0, 2_000).map(lambda thousandths: thousandths / 128)
)


def exposed(registry: CollectorRegistry) -> list[str]:
    return [line for line in generate_latest(registry).decode().splitlines() if "_created" not in line]


@given(st.lists(st.lists(st.tuples(st.sampled_from(["chat", "autocomplete"]), VALUES))))
def test_what_is_poured_is_what_was_counted(rounds: list[list[tuple[str, float]]]) -> None:
    """rounds: what is counted between two pourings."""
    direct, poured = CollectorRegistry(), CollectorRegistry()
    buffers = MetricBuffers()
    metrics = [
        (
            Counter("events", "-", ["tier"], registry=registry),
            Gauge("level", "-", registry=registry),
            Histogram("wait", "-", ["tier"], buckets=BOUNDS, registry=registry),
        )
        for registry in (direct, poured)
    ]
    (counter, gauge, histogram), (tallied_counter, tallied_gauge, tallied_histogram) = metrics
    for events in rounds:
        for tier, value in events:
            counter.labels(tier).inc(value)
            gauge.set(value)
            histogram.labels(tier).observe(value)
            buffers.counter(tallied_counter, tier).add(value)
            buffers.gauge(tallied_gauge).value = value
            buffers.histogram(tallied_histogram, tier).observe(value)
        buffers.flush()
    assert sorted(exposed(direct)) == sorted(exposed(poured))


async def test_pouring_goes_on_until_it_is_stopped() -> None:
    registry = CollectorRegistry()
    counter = Counter("events", "-", registry=registry)
    buffers = MetricBuffers(period_s=0.001)
    buffers.start()
    for expected in (1.0, 2.0):
        buffers.counter(counter).add()
        async with asyncio.timeout(20):
            while registry.get_sample_value("events_total") != expected:  # noqa: ASYNC110
                await asyncio.sleep(0.001)
    buffers.counter(counter).add()
    buffers.stop()
    assert registry.get_sample_value("events_total") == 3.0
