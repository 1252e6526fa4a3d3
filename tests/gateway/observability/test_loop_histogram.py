"""The histogram without locks shows what prometheus_client's own shows."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, Histogram, generate_latest

from gateway.observability.loop_histogram import LoopHistogram

BUCKETS = (0.001, 0.5, 1.0, 30.0)


def shown(registry: CollectorRegistry) -> list[str]:
    """The exposition, without the times at which prometheus_client's series began."""
    return [line for line in generate_latest(registry).decode().splitlines() if "_created" not in line]


@given(
    st.lists(
        st.tuples(st.sampled_from(["chat", 'a"b\\']), st.sampled_from(["decode", "queue"]), st.floats(0, 100)),
        max_size=30,
    )
)
def test_the_same_values_show_the_same(observed: list[tuple[str, str, float]]) -> None:
    plain, ours = CollectorRegistry(), CollectorRegistry()
    reference = Histogram("wall_seconds", "Wall time.", ["tier", "phase"], buckets=BUCKETS, registry=plain)
    histogram = LoopHistogram("wall_seconds", "Wall time.", ["tier", "phase"], buckets=BUCKETS, registry=ours)
    for tier, phase, value in observed:
        reference.labels(tier, phase).observe(value)
        histogram.labels(tier, phase).observe(value)
    assert shown(ours) == shown(plain)


def test_a_value_on_a_bound_is_in_its_bucket() -> None:
    registry = CollectorRegistry()
    histogram = LoopHistogram("wall_seconds", "Wall time.", [], buckets=BUCKETS, registry=registry)
    histogram.labels().observe(0.5)
    assert registry.get_sample_value("wall_seconds_bucket", {"le": "0.001"}) == 0
    assert registry.get_sample_value("wall_seconds_bucket", {"le": "0.5"}) == 1
    assert registry.get_sample_value("wall_seconds_count") == 1
