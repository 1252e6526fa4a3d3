"""script.lua as bytes on the wire: packs its calls, reads its answers. No I/O."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from importlib import resources

from gateway.limits.bucket import Counter, Decision, Plan, Status
from gateway.limits.command import pack


def source() -> str:
    """The text of script.lua."""
    return resources.files("gateway.limits").joinpath("script.lua").read_text(encoding="utf-8")


class Script:
    """One version of the script. load: the packed command that makes a server know it. lease_ms, record_ms: as in
    LimitsConfig."""

    def __init__(self, text: str, lease_ms: int, record_ms: int) -> None:
        self.load = pack(("SCRIPT", "LOAD", text))
        self.sha = hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest()
        self.lease_ms = lease_ms
        self.record_ms = record_ms


class Calls:
    """Packs the calls of one plan. What never changes between them is packed once: it is most of the bytes, and
    packing it anew was most of a call's cost."""

    def __init__(self, script: Script, plan: Plan) -> None:
        self.plan = plan
        self._script = script
        buckets = plan.buckets
        self._head = _words("EVALSHA", script.sha, len(buckets) + 1, *(bucket.key for bucket in buckets))
        described = [word for bucket in buckets for word in (bucket.kind.value, bucket.limit, bucket.period_ms)]
        self._described = _words(script.lease_ms, script.record_ms, len(buckets), *described)
        # EVALSHA, sha, number of keys, keys, record; verb and three numbers, buckets, amounts, id
        self._head = b"*%d\r\n" % (3 + len(buckets) + 1 + 4 + 3 * len(buckets) + len(buckets) + 1) + self._head
        self._reserve = _words("reserve") + self._described
        self._settle = _words("settle") + self._described
        self._counts_tokens = [bucket.counter is Counter.TOKENS for bucket in buckets]
        self._record_prefix = plan.record_prefix.encode()

    def reserve(self, reservation_id: str, requests: int, tokens: int) -> bytes:
        """The packed call; its reply is for `decision`."""
        return self._one(self._reserve, reservation_id.encode(), requests, tokens)

    def settle(self, reservation_id: str, requests: int, tokens: int) -> bytes:
        """The packed call; it replies [1] when it changed something."""
        return self._one(self._settle, reservation_id.encode(), requests, tokens)

    def renew(self, reservation_ids: Sequence[str]) -> bytes:
        """The packed call for any number of reservations; it replies [how many are open]."""
        buckets = self.plan.buckets
        records = [self.plan.record_prefix + reservation_id for reservation_id in reservation_ids]
        words: list[str | int] = ["EVALSHA", self._script.sha, len(buckets) + len(records)]
        words += [bucket.key for bucket in buckets]
        words += [*records, "renew", self._script.lease_ms, self._script.record_ms, len(buckets)]
        for bucket in buckets:
            words += [bucket.kind.value, bucket.limit, bucket.period_ms]
        return pack([*words, *(0 for _ in buckets), *reservation_ids])

    def _one(self, verb: bytes, reservation_id: bytes, requests: int, tokens: int) -> bytes:
        record = self._record_prefix + reservation_id
        request_word, token_word = _words(requests), _words(tokens)
        amounts = b"".join([token_word if tokens_here else request_word for tokens_here in self._counts_tokens])
        name = b"$%d\r\n%b\r\n" % (len(reservation_id), reservation_id)
        return b"%b$%d\r\n%b\r\n%b%b%b" % (self._head, len(record), record, verb, amounts, name)


def decision(reply: Sequence[int]) -> Decision:
    """The reply to a `reserve`."""
    return Decision(Status(reply[0]), reply[1], reply[2], tuple(reply[3:]))


def _words(*words: str | int) -> bytes:
    """Words as they stand inside a packed command."""
    return b"".join([b"$%d\r\n%b\r\n" % (len(word), word) for word in [str(each).encode() for each in words]])
