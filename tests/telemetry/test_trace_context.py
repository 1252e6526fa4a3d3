"""W3C's header: read as the library reads it, whoever wrote it; and who is traced is not for strangers to say."""

from __future__ import annotations

import random

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from opentelemetry.trace import get_current_span
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from telemetry.sampler import Sampler, following
from telemetry.trace_context import new_span_id, new_trace_id, parse

TRACE, SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
HEADER = f"00-{TRACE}-{SPAN}-01"
PARTS = st.tuples(
    st.sampled_from(["00", "01", "cc", "ff", "0", "0G", ""]),
    st.sampled_from([TRACE, "0" * 32, TRACE.upper(), TRACE[:-1], TRACE + "0", ""]),
    st.sampled_from([SPAN, "0" * 16, SPAN.upper(), SPAN[1:], ""]),
    st.sampled_from(["00", "01", "02", "03", "ff", "1", "zz", ""]),
    st.sampled_from([None, "", "more", "a-b", "x" * 600]),
)


def by_the_library(header: str) -> tuple[str, str, bool] | None:
    context = get_current_span(TraceContextTextMapPropagator().extract({"traceparent": header})).get_span_context()
    if not context.is_valid:
        return None
    return f"{context.trace_id:032x}", f"{context.span_id:016x}", context.trace_flags.sampled


def ours(header: str) -> tuple[str, str, bool] | None:
    parent = parse(header)
    return None if parent is None else (parent.trace_id, parent.span_id, parent.sampled)


@given(parts=PARTS)
def test_nearly_right_headers_are_read_as_by_the_library(parts: tuple[str | None, ...]) -> None:
    header = "-".join(part for part in parts if part is not None)
    assert ours(header) == by_the_library(header)


@given(header=st.text(max_size=80) | st.binary(max_size=80).map(lambda raw: raw.decode("latin-1")))
@example(HEADER)
@example(HEADER + "\n")
@example("00-" + "٣" * 32 + f"-{SPAN}-01")
def test_nonsense_is_as_if_it_were_not_there(header: str) -> None:
    # the library forgives spaces around it, which HTTP has taken away by then
    if header == header.strip(" \t\n"):
        assert ours(header) == by_the_library(header)
    trace = Sampler(1.0).begin(header)
    assert parse(trace.traceparent()) is not None


def test_what_we_send_is_read_back() -> None:
    trace = Sampler(1.0).begin(HEADER, "a=1")
    assert (trace.trace_id, trace.parent_id, trace.state) == (TRACE, SPAN, "a=1")
    assert trace.span_id != SPAN
    below = following(trace.traceparent())
    assert below is not None
    assert (below.trace_id, below.parent_id) == (TRACE, trace.span_id)
    assert parse(f"00-{new_trace_id()}-{new_span_id()}-00") is not None


@pytest.mark.parametrize("header", ["", "nonsense", f"00-{TRACE}-{SPAN}-00"])
def test_router_and_engine_make_spans_only_where_the_gateway_does(header: str) -> None:
    assert following(header) is None


@pytest.mark.parametrize("ratio", [0.0, 0.01, 0.3, 1.0])
@pytest.mark.parametrize("header", ["", HEADER, f"00-{'0' * 31}1-{SPAN}-01"])
def test_the_ratio_holds_whatever_clients_send(ratio: float, header: str) -> None:
    """Ids of small numbers are what a sampler by the id would always choose."""
    sampler, count = Sampler(ratio, chance=random.Random(7).random), 20_000
    sampled = sum(sampler.begin(header).sampled for _ in range(count))
    deviation = (count * ratio * (1 - ratio)) ** 0.5
    assert abs(sampled - count * ratio) <= 4 * deviation


def test_requests_that_nobody_traces_share_a_place_until_one_is_chosen() -> None:
    chances = iter((0.5, 0.5, 0.0, 0.5))
    sampler = Sampler(0.1, chance=lambda: next(chances))
    one, other, chosen, later = (sampler.begin("") for _ in range(4))
    assert one is other
    assert len({each.trace_id for each in (one, chosen, later)}) == 3
    assert [each.sampled for each in (one, chosen, later)] == [False, True, False]


def test_a_trusted_client_decides_where_it_says_anything() -> None:
    sampler = Sampler(0.0, trust_client=True)
    assert sampler.begin(HEADER).sampled
    assert not Sampler(1.0, trust_client=True).begin(f"00-{TRACE}-{SPAN}-00").sampled
    assert not sampler.begin("").sampled
    assert Sampler(1.0, trust_client=True).begin("").sampled


def test_a_trace_is_named_only_where_it_can_be_found() -> None:
    assert not Sampler(0.0).begin("").known_elsewhere
    assert Sampler(0.0).begin(HEADER).known_elsewhere
    assert Sampler(1.0).begin("").known_elsewhere


@pytest.mark.parametrize(
    ("state", "kept"),
    [
        ("congo=t61rcWkgMzE,rojo=00f067aa0ba902b7", True),
        ("vendor@system=1, other=2", True),
        ("a=1,,b=2", True),
        ("no-value", False),
        ("a=\x1b[31m", False),
        ("Upper=1", False),
        ("a=" + "x" * 600, False),
        (",".join(f"k{number}=1" for number in range(33)), False),
    ],
)
def test_a_state_that_is_none_is_not_carried(state: str, kept: bool) -> None:
    begun = Sampler(1.0).begin("00-" + "a" * 32 + "-" + "b" * 16 + "-01", state)
    assert begun.state == (state if kept else "")
