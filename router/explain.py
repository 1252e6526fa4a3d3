"""Renders the router's record of one request as text."""

from __future__ import annotations

from collections.abc import Sequence

from router.core.record import Record
from router.core.split import SplitChoice

LEGEND = (
    "blocks: units by which prompt prefixes are compared: 64 tokens, or 256 bytes where a gateway has no\n"
    "tokenizer; objective: time to first token that router.slos sets for a prompt of this tier and length: requests\n"
    "are placed by it; slo.objectives judge them (`slipstream diagnose slo`)\n"
    "cached, to compute: prompt tokens assumed cached on the replica, and the rest; ahead: prompt tokens of others\n"
    "it had to compute first; predicted: time to the first token there; cost: the policy takes the least\n"
    "leases: requests it had, and its limit; where the limit is learnt, `at most` shows why it last moved\n"
    "regret: by how much the first token came later than predicted for the best other replica; the others' real\n"
    "times are unknown"
)

USUAL = 100
"""The setting's value for the router's share of 1."""


def told(records: Sequence[Record]) -> str:
    """The records of one request as text for people."""
    if not records:
        return (
            "The router has no decision about this request on record. It keeps the newest ones until it is "
            "restarted: up to router.explain_records of them, of the share of requests that "
            "router.explain_share sets. A request that a gateway refuses is never placed; `slipstream requests show` "
            "shows why."
        )
    return "\n\n".join(_told(record) for record in records)


def _objective(record: Record) -> str:
    if not record.ttft_slo_s:
        return "none: background work, vectors or scores"
    return f"first token within {_ms(record.ttft_slo_s)}"


def line(record: Record) -> str:
    """One decision on one line."""
    start = f"{record.request_id}  {record.model}  {record.prompt_tokens:,} tokens  waited {_ms(record.queued_s)}"
    if record.refused:
        return f"{start}  refused, {record.refused}"
    return (
        f"{start}  {record.chosen}  {record.predicted_cached_tokens:,} cached  first token in {_ms(record.predicted_s)}"
    )


def _told(record: Record) -> str:
    lease = "" if record.lease_id == record.request_id else f" ({record.lease_id})"
    lines = [
        f"attempt {record.attempt} of {record.request_id}{lease}, {record.model} in pool {record.pool}",
        f"  prompt {record.prompt_tokens:,} tokens in {record.blocks} blocks, tenant {record.organization_id or '-'}",
        f"  objective: {_objective(record)}; waited {_ms(record.queued_s)}"
        + (f": {record.waited_for}" if record.waited_for and record.queued_s else ""),
        f"  class: {record.service_class}; share {USUAL * record.share:g}, of its project "
        f"{USUAL * record.project_share:g}",
    ]
    if record.split is not None:
        lines += _split(record.split)
    if record.refused:
        back = "" if record.retry_after_s is None else f"; retry in {record.retry_after_s:.2g} s"
        return "\n".join([*lines, f"  refused, {record.refused}{back}"])
    lines.append(
        f"  policy {record.policy!r} chose {record.chosen}, first token predicted after {_ms(record.predicted_s)}:"
    )
    if record.speculation:
        lines.append(f"  drafts: {record.speculation}")
    if record.prefill:
        lines.append(f"  prefill engine: {record.prefill}")
    if record.adapter:
        lines.append(f"  adapter {record.adapter}: {_adapter(record)}")
    head = ("replica", "cached", "to compute", "ahead", "leases", "predicted", "cost")
    rows = [
        (
            ("> " if each.replica_id == record.chosen else "  ") + each.replica_id,
            f"{record.prompt_tokens - each.uncached_tokens:,}" if each.overlap_blocks else "0",
            f"{each.uncached_tokens:,}",
            f"{each.ahead_tokens:,}",
            f"{each.leases}/{each.max_concurrency}",
            _ms(each.predicted_s),
            f"{each.cost:.3f}",
        )
        for each in sorted(record.candidates, key=lambda candidate: candidate.cost)
    ]
    widths = [max(len(row[at]) for row in [head, *rows]) for at in range(len(head))]
    lines += [
        "    " + "  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)) for row in [head, *rows]
    ]
    lines += [
        f"  at most {each.max_concurrency} on {each.replica_id}: {each.limited_by}"
        for each in record.candidates
        if each.replica_id == record.chosen
    ]
    if record.actual_s is not None:
        lines.append(f"  first token came after {_ms(record.actual_s)}; regret {_ms(record.regret_s or 0.0)}")
    if record.actual_cached_tokens is not None:
        lines.append(
            f"  cached: predicted {record.predicted_cached_tokens:,}, reported {record.actual_cached_tokens:,}; "
            f"{record.completion_tokens:,} tokens generated"
        )
    return "\n".join(lines)


def _adapter(record: Record) -> str:
    if not record.adapter_load:
        return "held there"
    if not record.adapter_evicted:
        return "loaded first, into a free slot"
    return f"loaded first, into the slot of {record.adapter_evicted}, {record.evicted_why}"


def _split(choice: SplitChoice) -> list[str]:
    lines = [f"  {'split over a pair' if choice.split else 'served whole'}: {choice.why}"]
    if (costs := choice.costs) is not None:
        lines += [
            f"    whole: prompt computed after {_ms(costs.whole_wait_s)}, interference {_ms(costs.interference_s)}",
            f"    pair:  prompt computed after {_ms(costs.pair_wait_s)}, transfer {_ms(costs.transfer_s)}",
        ]
    return lines


def _ms(seconds: float) -> str:
    return f"{seconds * 1e3:,.0f} ms"
