"""Formats a plan as text of 80 columns for people, and in full for programs."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterable, Iterator, Sequence

import msgspec

from slipstream.table import table
from tools.planning.cached_price import WRITE_1_HOUR, WRITE_5_MINUTES, paid_share, reads_that_pay
from tools.planning.measured_error import Bounds, MeasuredErrors, measured_errors
from tools.planning.plan import Plan
from tools.planning.prices import PUBLISHED, SOURCE
from tools.planning.replicas import Side

COLUMNS = 80
NOT_MEASURED = "not measured"
BY_ERROR = "- by its error"
"""The label of the line below a figure with an error: the range of the figure without the error."""
MIN = 0.0001
"""Smallest value that is printed as a number; a smaller one is printed as below it."""
BYTES = {"bf16": "BF16", "fp8": "FP8", "nvfp4": "NVFP4, a projection"}


class ReportedSide(msgspec.Struct, frozen=True):
    """The number of replicas that one side requires."""

    side: Side
    replicas: float
    error: Bounds | None


class ReportedPlan(msgspec.Struct, frozen=True):
    """The output of `--json` for each kind of replica."""

    plan: Plan
    sides: list[ReportedSide]
    binding: Side
    decided_by: Side
    replicas_needed: int
    replicas_by_error: tuple[int, int] | None
    """The range by the error of the side that decides; None without one, and for queueing, whose error is of a time."""
    cards: int
    kv_tokens_per_replica: int
    projected: bool
    errors: MeasuredErrors


class Refusal(msgspec.Struct, frozen=True):
    """A kind of replica that cannot serve the workload."""

    kind: str
    reason: str


def reported(plan: Plan) -> ReportedPlan:
    """A plan with the figures derived from it and their errors."""
    errors = measured_errors(plan.node, plan.hardware.precision, plan.workload.output_tokens)
    by_side = {
        Side.PREFILL: errors.prefill_time,
        Side.KV_MEMORY: errors.memory,
        Side.BANDWIDTH: errors.step_time,
        Side.TOGETHER: inverse(errors.saturated_rate),
        Side.QUEUEING: errors.formula.ttft_p99,
    }
    return ReportedPlan(
        plan=plan,
        sides=[ReportedSide(side, plan.replicas.of(side), by_side[side]) for side in Side],
        binding=plan.replicas.binding,
        decided_by=plan.replicas.decided_by,
        replicas_needed=plan.replicas.needed,
        replicas_by_error=_replicas_by_error(plan, by_side[plan.replicas.decided_by]),
        cards=plan.cards,
        kv_tokens_per_replica=plan.node.kv_capacity_tokens,
        projected=plan.hardware.precision.projected,
        errors=errors,
    )


def inverse(bounds: Bounds | None) -> Bounds | None:
    """The error of a number of replicas if their rate has this error."""
    return None if bounds is None else (1 / (1 + bounds[1]) - 1, 1 / (1 + bounds[0]) - 1)


def without(planned: float, error: Bounds) -> Bounds:
    """The range of a figure without this error."""
    low, high = error
    return planned / (1 + high), planned / (1 + low)


def _replicas_by_error(plan: Plan, error: Bounds | None) -> tuple[int, int] | None:
    """The range of replicas by this error, but never fewer than the other sides require."""
    decided_by = plan.replicas.decided_by
    if error is None or decided_by is Side.QUEUEING:
        return None
    others = max(plan.replicas.of(side) for side in Side if side is not decided_by)
    low, high = (math.ceil(max(each, others) - 1e-9) for each in without(plan.replicas.of(decided_by), error))
    return low, high


def text_of(plan: Plan, with_errors: bool = False) -> str:
    """The report on one kind of replica, its answer first. with_errors: with the measured error of each figure."""
    return "\n".join(_whole(reported(plan), with_errors))


def _answer(report: ReportedPlan) -> str:
    plan = report.plan
    return (
        f"{counted(report.replicas_needed, 'replica')} of {kind_of(plan)} ({counted(report.cards, 'GPU')}): "
        f"{plan.cost.per_month:,.0f} dollars a month, first token {_ms(plan.ttft_p99_s)} (p99), "
        f"{_told(plan.knee.operated_at.tpot_s * 1e3)} ms a token. {report.binding.value.capitalize()} runs out first."
    )


def _whole(report: ReportedPlan, with_errors: bool) -> Iterator[str]:
    plan = report.plan
    workload, promise = plan.workload, plan.promise
    yield from textwrap.wrap(_answer(report), COLUMNS)
    yield ""
    yield f"{plan.node.model.name} in {BYTES[plan.hardware.precision.value]}, {kind_of(plan)} a replica"
    yield (
        f"asked     {_told(workload.requests_per_s)} requests/s, {workload.prompt_tokens:,.0f} tokens in "
        f"({workload.cached_share:.0%} cached), {workload.output_tokens:,.0f} out"
    )
    yield f"promised  first token {_ms(promise.ttft_s)} (p99), {_ms(promise.tpot_s)} a token"
    yield ""
    yield from _figures(("replicas by", "needed", "", "error"), [*_sides(report), *_fleet(report)], with_errors)
    yield ""
    yield from _figures(("one replica", "", "error"), _replica(report), with_errors)
    yield ""
    yield from table(("cost", "US dollars"), _cost(plan))
    yield ""
    yield from _split(plan)
    yield ""
    published = plan.hardware.card_per_hour == PUBLISHED.get(plan.node.gpu.name)
    notes = _legend(report.errors) if with_errors else "The measured accuracy of each figure: --errors."
    yield from textwrap.wrap(notes + (f" Price: {SOURCE}." if published else ""), COLUMNS)


def _figures(head: Sequence[str], rows: Iterable[Sequence[str]], with_errors: bool) -> Iterator[str]:
    """The table, with or without its error column and the lines that have only errors."""
    if not with_errors:
        head, rows = head[:-1], [row[:-1] for row in rows if not row[0].startswith("- by ")]
    yield from table(head, rows)


def _legend(errors: MeasuredErrors) -> str:
    own = "; ".join(
        f"{error_of(each.error)} {figure}"
        for each, figure in (
            (errors.modelled_ttft_p50, "the median first token"),
            (errors.modelled_ttft_p99, "its p99"),
            (errors.modelled_time_per_token, "the time per token"),
        )
    )
    fleet = errors.whole_fleet
    return (
        "error: planned over real, less 1, when it was last measured; by its error: the figure corrected for it. "
        "Prefill, bandwidth and rate were compared with published figures of the same GPU, precision and number of "
        "GPUs; first token and time per token with the modelled engine, whose own error comes on top: "
        f"{own}, compared with the embedded engine on a processor ({errors.modelled_ttft_p50.told}). Queueing has the "
        "error of the first token, cost that of the replicas. A whole fleet's first token, p99: "
        f"{error_of(fleet.error)} ({fleet.told})."
    )


def _sides(report: ReportedPlan) -> Iterator[Sequence[str]]:
    for each in report.sides:
        marks = []
        if each.side is report.binding:
            marks.append("binds")
        if each.side is report.decided_by:
            marks.append("decides")
        number = f"{each.replicas:,.0f}" if each.side is Side.QUEUEING else _told(each.replicas)
        yield each.side.value, number.rjust(10), ", ".join(marks), error_of(each.error)


def _fleet(report: ReportedPlan) -> Iterator[Sequence[str]]:
    yield "fleet", f"{report.replicas_needed:,}".rjust(10), counted(report.cards, "GPU"), ""
    if report.replicas_by_error is not None:
        low, high = report.replicas_by_error
        yield (
            "- by the error that decides",
            (f"{low:,}" if low == high else f"{low:,} to {high:,}").rjust(10),
            "",
            "",
        )


def _replica(report: ReportedPlan) -> Iterator[Sequence[str]]:
    plan, errors = report.plan, report.errors
    point, knee, memory, ideal = plan.knee.operated_at, plan.knee, plan.node.memory, plan.ideal
    yield "largest batch", f"{point.batch}; knee {knee.point.batch}, by {knee.broken_by or 'nothing tried'}", ""
    yield "rate", f"{_told(point.requests_per_s, 2)} requests/s with that batch", error_of(errors.saturated_rate)
    if errors.saturated_rate is not None:
        low, high = without(point.requests_per_s, errors.saturated_rate)
        yield BY_ERROR, f"{_told(low, 2)} to {_told(high, 2)}", ""
    yield "first token, p99", f"{_ms(plan.ttft_p99_s)} in this fleet", error_of(errors.formula.ttft_p99)
    yield BY_ERROR, _ms_by_error(plan.ttft_p99_s, errors.formula.ttft_p99), ""
    yield "time per token", f"{_told(point.tpot_s * 1e3)} ms with that batch", error_of(errors.formula.time_per_token)
    yield BY_ERROR, _ms_by_error(point.tpot_s, errors.formula.time_per_token), ""
    yield "- bandwidth floor", f"{_told(ideal.step_floor_s * 1e3)} ms, {ideal.stream_tokens_per_s:,.0f}/s a stream", ""
    yield "prefill on paper", f"{ideal.prefill_tokens_per_s:,.0f} tokens/s at the whole peak", ""
    yield "chunk", f"{plan.chunk_tokens:,} tokens; longest gap {_ms(point.gap_s)}", NOT_MEASURED
    yield "memory", f"{_gb(memory.total_bytes)} GB", ""
    yield "- weights", f"{_gb(memory.weights_bytes)} GB", ""
    yield "- reserve", f"{_gb(memory.reserve_bytes)} GB", NOT_MEASURED
    yield "= keys and values", f"{_gb(memory.kv_bytes)} GB, {memory.kv_tokens:,} tokens", error_of(errors.memory)
    tokens = plan.workload.tokens
    yield "concurrency", f"{memory.concurrent(tokens):,} of {tokens:,.0f} tokens", NOT_MEASURED
    if plan.workload.longest_tokens:
        admitted = memory.admits(round(point.kv_tokens), plan.workload.longest_tokens)
        yield "longest request", f"{'fits' if admitted else 'waits for room'} next to a full batch", NOT_MEASURED
    yield (
        "longest context",
        f"{memory.kv_tokens:,} alone, {memory.context_tokens(point.batch):,} each of {point.batch}",
        NOT_MEASURED,
    )


def _cost(plan: Plan) -> Iterator[Sequence[str]]:
    cost, cached = plan.cost, plan.cost.cached
    yield "a month of 730 hours", f"{cost.per_month:,.0f}, at {plan.hardware.card_per_hour:.2f} a GPU and hour"
    yield "a million tokens", f"{_told(cost.per_million_tokens, 3)}, in and out together"
    yield "a million out", f"{_told(cost.per_million_output_tokens, 3)}"
    yield "a million in", f"{_told(cost.per_million_new_prompt_tokens, 3)}, computed"
    if plan.workload.cached_share:
        share = paid_share(plan.workload.cached_share)
        yield (
            "",
            f"{_told(cost.per_million_new_prompt_tokens * share, 3)}, with {plan.workload.cached_share:.0%} cached",
        )
    yield (
        "a million in, cached",
        f"{_told(cached.read, 4)} read (0.1 of it); written {_told(cached.written_for_5_minutes, 3)} for 5 minutes,",
    )
    yield (
        "",
        f"{_told(cached.written_for_1_hour, 3)} for an hour, paid for by {reads_that_pay(WRITE_5_MINUTES)} and "
        f"{reads_that_pay(WRITE_1_HOUR)} reads",
    )


def _split(plan: Plan) -> Iterator[str]:
    split = plan.split
    verb = "split" if plan.split_pays else "keep together"
    text = (
        f"prefill and decoding: {verb}. Moving a prompt's keys and values takes {_ms(split.transfer_s)}, its prefill "
        f"delays running streams for {_ms(split.interference_s)} ({NOT_MEASURED}). "
    )
    if split.replicas is None:
        text += "Split, the promise would be out of reach."
    else:
        needed = plan.replicas.needed
        text += (
            f"Split, {counted(split.prefill_replicas or 0, 'replica')} for prefill and {split.decode_replicas:,} for "
            f"decoding would do, {split.replicas:,} where {needed:,} {'does' if needed == 1 else 'do'} both"
        )
        more = split.replicas - needed
        if split.worthwhile and more >= 0:
            text += f": streams would be smoother, for {f'{more:,} more' if more else 'as many replicas'}"
        text += "."
    yield from textwrap.wrap(text, COLUMNS)


HEAD = ("replica", "replicas", "GPUs", "binds", "$/month", "$/M", "error")


COLUMNS_MEAN = (
    "binds: the resource that runs out first; $/M: a million tokens, in and out together; error: of a full replica's "
    "rate against published figures, planned over real, less 1"
)


def comparison(plans: Sequence[Plan], refusals: Iterable[Refusal]) -> str:
    """The report on several kinds of replica, one line each, cheapest first."""
    rows = []
    for plan in sorted(plans, key=lambda plan: plan.cost.per_hour):
        report = reported(plan)
        rows.append((
            f"{kind_of(plan)} {plan.hardware.precision.value}{'*' * report.projected}",
            f"{report.replicas_needed:,}",
            f"{report.cards:,}",
            report.binding.value,
            f"{plan.cost.per_month:,.0f}",
            _told(plan.cost.per_million_tokens, 3),
            error_of(report.errors.saturated_rate),
        ))  # fmt: skip
    lines = [*table(HEAD, rows), "", *textwrap.wrap(COLUMNS_MEAN, COLUMNS)]
    if any(plan.hardware.precision.projected for plan in plans):
        lines.append("* a projection: no engine's published figure was compared with it")
    for refusal in refusals:
        lines += textwrap.wrap(f"{refusal.kind}: {refusal.reason}", COLUMNS, subsequent_indent="  ")
    return "\n".join(lines)


def counted(number: int, what: str) -> str:
    """A count such as `1 GPU` or `6,400 GPUs`."""
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def kind_of(plan: Plan) -> str:
    """The GPUs of a replica, such as `4 x H100`."""
    return f"{plan.node.gpus} x {plan.node.gpu.name}"


def error_of(bounds: Bounds | None) -> str:
    """An error as text such as `-9 to +7 %`."""
    if bounds is None:
        return NOT_MEASURED
    low, high = (f"{part * 100:+.0f}" for part in bounds)
    return f"{low} %" if low == high else f"{low} to {high} %"


def _told(value: float, digits: int = 1) -> str:
    """The value with so many decimal places; two significant digits if those would be zeros."""
    if value >= 10**-digits or value == 0:
        return f"{value:,.{digits}f}"
    return f"{value:.2g}" if value >= MIN else f"<{MIN}"


def _ms(seconds: float) -> str:
    return f"{seconds * 1e3:,.0f} ms" if seconds >= 0.1 else f"{_told(seconds * 1e3)} ms"


def _ms_by_error(seconds: float, error: Bounds) -> str:
    low, high = without(seconds, error)
    return f"{_ms(low)} to {_ms(high)}"


def _gb(size: float) -> str:
    return _told(size / 1e9)
