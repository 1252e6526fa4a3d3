"""Keeps the final usage of past requests by id, which a gateway reads after a crash."""

from __future__ import annotations

from collections import OrderedDict

import msgspec

from engines.embedded.output import Speculated, Timing


class RequestUsage(msgspec.Struct, frozen=True):
    """Token counts of a whole request, over all choices; each prompt counts once."""

    prompt_tokens: int
    total_tokens: int
    completion_tokens: int
    cached_tokens: int
    speculated: tuple[Speculated, ...] = ()
    """Speculation counts of every choice; empty if none had drafts."""
    timings: tuple[Timing, ...] = ()
    """Timings of the choices whose prompts were computed, in the order of the choices."""

    def wire(self) -> dict[str, object]:
        """The counts in the shape of a response's `usage`."""
        return {
            "prompt_tokens": self.prompt_tokens,
            "total_tokens": self.total_tokens,
            "completion_tokens": self.completion_tokens,
            "prompt_tokens_details": {"cached_tokens": self.cached_tokens},
            "reasoning_tokens": 0,
        }

    def extension(self) -> dict[str, object] | None:
        """Further fields next to the usage; None if there are none.

        Drafts are in SGLang's form, as a list for several choices. Timing is in our own form: the phases of the first
        choice, for whose prompt the others may have waited, and the number of retractions of all choices.
        """
        fields: dict[str, object] = {}
        if self.speculated:
            details = [_details(one) for one in self.speculated]
            fields["spec_tokens_details"] = details if len(details) > 1 else details[0]
        if self.timings:
            first = self.timings[0]
            fields["request_timing"] = {
                "queue_ms": round(first.queue_s * 1e3, 3),
                "prefill_ms": round(first.prefill_s * 1e3, 3),
                "grammar_ms": round(first.grammar_s * 1e3, 3),
                "retractions": sum(one.retractions for one in self.timings),
            }
        return fields or None


def _details(one: Speculated) -> dict[str, object]:
    return {
        "spec_accept_rate": one.accepted / one.drafts if one.drafts else 0.0,
        "spec_accept_length": 1 + one.accepted / one.checks if one.checks else 0.0,
        "spec_num_correct_drafts": one.accepted,
        "spec_num_proposed_drafts": one.drafts,
        "spec_verify_ct": one.checks,
    }


class UsageHistory:
    """Keeps the newest `capacity` requests."""

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._by_id: OrderedDict[str, RequestUsage] = OrderedDict()

    def put(self, rid: str, usage: RequestUsage) -> None:
        """Record a finished request; it replaces an earlier one with the same id."""
        self._by_id.pop(rid, None)
        self._by_id[rid] = usage
        while len(self._by_id) > self._capacity:
            self._by_id.popitem(last=False)

    def get(self, rid: str) -> RequestUsage | None:
        """A finished request's usage, or None if it is unknown or no longer kept."""
        return self._by_id.get(rid)
