"""The figures of a replay: quantiles by kind of key, the histogram of tokens prefilled again, and cancels."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import msgspec

from benchmarks.keystroke_sessions.editor import Asked
from benchmarks.keystroke_sessions.edits import Kind
from benchmarks.keystroke_sessions.engine_load import EngineLoad
from benchmarks.keystroke_sessions.sites import QUEUED_S, Row
from engines.embedded.config import SchedulerConfig

WARM = (Kind.TYPED, Kind.LINE)
"""Keys whose prompt the engine has seen except for what they added. A jump is not one: the text after the cursor comes
first in the prompt, and it has changed."""
STEP_TOKENS = SchedulerConfig().max_batch_tokens
EDGES = (1, 2, 4, 8, 16, 32, 64, 128, 300, 1_000, 2_000, 4_000, 8_000)
"""Upper bounds of the histogram's bars, in tokens; the last bar holds the values above them."""


class Figures(msgspec.Struct, frozen=True):
    """The figures of one replay. None if there is no value to compute a figure from."""

    requests: int
    failed: int
    prefilled_again_p50: float | None
    prefilled_again_p99: float | None
    warm_ttft_p50_ms: float | None
    warm_ttft_p99_ms: float | None
    cold_ttft_p50_ms: float | None
    cold_ttft_p99_ms: float | None
    jumps: int
    jump_again_p50: float | None
    """Tokens prefilled again for the first key at another place."""
    jump_ttft_p50_ms: float | None
    cancels: int
    cancel_p50_ms: float | None
    cancel_p99_ms: float | None
    step_p99_ms: float | None
    """The engines' steps during the replay; an abort may wait for one step."""
    superseded_share: float
    """The share of requests that the gateway ended for a newer one, or their editor by closing the connection."""
    reused_share: float
    """The share of requests that were answered from the output of another request."""
    refused_share: float
    """The share of requests that were answered with an error, or whose connection was lost."""
    queued_share: float
    """The share of requests that queued for longer than `QUEUED_S`."""
    engine_busy_share: float | None
    """The share of the time that the engines spent in steps."""
    kv_tokens: int | None
    """The capacity of the engines' KV caches together."""
    evicted_tokens: int | None
    histogram: tuple[int, ...]
    """The number of warm keys by tokens prefilled again, in the bars of `EDGES`."""

    @property
    def cancel_p99_steps(self) -> float | None:
        """`cancel_p99_ms` in steps."""
        if self.cancel_p99_ms is None or not self.step_p99_ms:
            return None
        return round(self.cancel_p99_ms / self.step_p99_ms, 3)

    @property
    def last_line(self) -> dict[str, float | None]:
        """The figures that a replay is judged by, by name."""
        names = (
            "prefilled_again_p50", "prefilled_again_p99", "warm_ttft_p50_ms", "cold_ttft_p50_ms", "cancel_p99_ms",
            "superseded_share", "warm_ttft_p99_ms", "cold_ttft_p99_ms", "cancel_p50_ms", "step_p99_ms",
            "cancel_p99_steps", "reused_share", "refused_share", "queued_share", "engine_busy_share", "evicted_tokens",
        )  # fmt: skip
        return {name: getattr(self, name) for name in names}


def figures(asked: Sequence[Asked], rows: Mapping[str, Row], load: EngineLoad | None = None) -> Figures:
    """Compute the figures. rows: by the editors' ids. load: that of the engines; None if they do not report it."""
    kinds = {one.id: one.kind for one in asked}
    keys = judged(asked, rows)
    again = [key.again for key in keys if key.again is not None and kinds[key.asked.id] in WARM]
    jumps = [key.again for key in keys if key.again is not None and key.asked.kind is Kind.JUMP]
    asked = [key.asked for key in keys]
    cancels = cancelled_s(asked, rows)
    ttft = {
        kind: [one.first_at - one.sent_at for one in asked if one.kind is kind and one.first_at is not None]
        for kind in Kind
    }
    warm = [each for kind in WARM for each in ttft[kind]]
    seen = [(one, rows.get(one.id)) for one in asked]
    superseded = sum(one.closed_at is not None or (row is not None and row.superseded) for one, row in seen)
    refused = sum(bool(one.refusal) for one in asked)
    queued = sum(row is not None and row.queued_s > QUEUED_S for _, row in seen)
    reused = sum(row is not None and row.reused for _, row in seen)
    return Figures(
        requests=len(asked),
        failed=refused,
        prefilled_again_p50=quantile(again, 0.5),
        prefilled_again_p99=quantile(again, 0.99),
        warm_ttft_p50_ms=_ms(quantile(warm, 0.5)),
        warm_ttft_p99_ms=_ms(quantile(warm, 0.99)),
        cold_ttft_p50_ms=_ms(quantile(ttft[Kind.COLD], 0.5)),
        cold_ttft_p99_ms=_ms(quantile(ttft[Kind.COLD], 0.99)),
        jumps=len(jumps),
        jump_again_p50=quantile(jumps, 0.5),
        jump_ttft_p50_ms=_ms(quantile(ttft[Kind.JUMP], 0.5)),
        cancels=len(cancels),
        cancel_p50_ms=_ms(quantile(cancels, 0.5)),
        cancel_p99_ms=_ms(quantile(cancels, 0.99)),
        step_p99_ms=None if load is None else load.step_p99_ms,
        superseded_share=_share(superseded, asked),
        reused_share=_share(reused, asked),
        refused_share=_share(refused, asked),
        queued_share=_share(queued, asked),
        engine_busy_share=None if load is None else load.busy_share,
        kv_tokens=None if load is None else load.kv_tokens,
        evicted_tokens=None if load is None else load.evicted_tokens,
        histogram=histogram(again),
    )


class Judged(NamedTuple):
    """A request, classified by how much of its file an engine had read."""

    asked: Asked
    """Its kind is cold, whatever the key, until an engine has read a whole prompt of the file: requests that were
    refused or superseded before left most of it unread."""
    again: int | None
    """The tokens of its prompt that an engine computed although one had read them; None if no engine had the request,
    or if it is a cold one in a file of which nothing had been read."""


def judged(asked: Sequence[Asked], rows: Mapping[str, Row]) -> list[Judged]:
    """Classify the requests, in the order in which they were sent."""
    found: list[Judged] = []
    read, whole = defaultdict[str, int](int), set[str]()
    for one in sorted(asked, key=lambda one: one.sent_at):
        row, file = rows.get(one.id), one.file
        warm = not file or file in whole
        again = None
        if row is not None and row.prompt_tokens:
            known = row.prompt_tokens if warm else min(read[file], row.prompt_tokens)
            again = max(known - row.cached_tokens, 0) if known else None
            # a request that ends during a step is counted with the whole step, but may not have computed all of it
            surely = row.prompt_tokens - (0 if row.read_whole else STEP_TOKENS)
            read[file] = max(read[file], surely)
            if row.read_whole:
                whole.add(file)
        found.append(Judged(one if warm else msgspec.structs.replace(one, kind=Kind.COLD), again))
    return found


def cancelled_s(asked: Sequence[Asked], rows: Mapping[str, Row]) -> list[float]:
    """The times from the moment that made an answer useless, its editor's close or next request, to the engine's
    confirmed end, of the requests that an engine had and that had not ended before."""
    found = []
    for one in asked:
        row = rows.get(one.id)
        if row is None or row.finish == "not_placed":
            continue
        since = one.closed_at if row.finish == "client_gone" else one.next_at if row.superseded else None
        if since is not None:
            found.append(max(row.closed_at - since, 0.0))
    return found


def histogram(values: Sequence[float]) -> tuple[int, ...]:
    """The number of values in each bar."""
    bars = [0] * (len(EDGES) + 1)
    for value in values:
        bars[sum(value > edge for edge in EDGES)] += 1
    return tuple(bars)


def quantile(values: Sequence[float], part: float) -> float | None:
    """The least value that at least this part of the values does not exceed."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(part * len(ordered)) - 1)] if ordered else None


def _share(count: int, asked: Sequence[Asked]) -> float:
    return round(count / max(len(asked), 1), 3)


def _ms(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds * 1e3, 1)
