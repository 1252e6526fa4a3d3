"""script.lua as bytes on the wire: packs its calls, reads its answers. No I/O."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from importlib import resources

from gateway.limits.bucket import Decision, Plan, Status
from gateway.limits.command import pack


def source() -> str:
    """The text of script.lua."""
    return resources.files("gateway.limits").joinpath("script.lua").read_text(encoding="utf-8")


class Script:
    """Calls to one version of the script. lease_ms, record_ms: as in LimitsConfig."""

    def __init__(self, text: str, lease_ms: int, record_ms: int) -> None:
        self.load = pack(("SCRIPT", "LOAD", text))
        self._sha = hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest()
        self._lease_ms = lease_ms
        self._record_ms = record_ms

    def reserve(self, plan: Plan, reservation_id: str, requests: int, tokens: int) -> bytes:
        """The packed call; its reply is for `decision`."""
        return self._one("reserve", plan, reservation_id, requests, tokens)

    def settle(self, plan: Plan, reservation_id: str, requests: int, tokens: int) -> bytes:
        """The packed call; it replies [1] when it changed something."""
        return self._one("settle", plan, reservation_id, requests, tokens)

    def renew(self, plan: Plan, reservation_ids: Sequence[str]) -> bytes:
        """The packed call for any number of reservations of one plan; it replies [how many are open]."""
        buckets = plan.buckets
        records = [plan.record_prefix + reservation_id for reservation_id in reservation_ids]
        words: list[str | int] = ["EVALSHA", self._sha, len(buckets) + len(records)]
        words += [bucket.key for bucket in buckets]
        words += records
        words += ["renew", self._lease_ms, self._record_ms, len(buckets)]
        for bucket in buckets:
            words += [bucket.kind, bucket.limit, bucket.period_ms, 0]
        words += reservation_ids
        return pack(words)

    def _one(self, verb: str, plan: Plan, reservation_id: str, requests: int, tokens: int) -> bytes:
        buckets = plan.buckets
        words: list[str | int] = ["EVALSHA", self._sha, len(buckets) + 1]
        words += [bucket.key for bucket in buckets]
        words += [plan.record_prefix + reservation_id, verb, self._lease_ms, self._record_ms, len(buckets)]
        for bucket in buckets:
            words += [bucket.kind, bucket.limit, bucket.period_ms, bucket.amount(requests, tokens)]
        words.append(reservation_id)
        return pack(words)


def decision(reply: Sequence[int]) -> Decision:
    """The reply to a `reserve`."""
    return Decision(Status(reply[0]), reply[1], reply[2], tuple(reply[3:]))
