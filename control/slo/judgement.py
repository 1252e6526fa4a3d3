"""Decides whether one request kept its objective, in plain Python: the rules that `judged.py` must equal in SQL.

Requests count if they were answered or failed by the platform's fault. These do not count, because they show nothing
about the platform:

- refusals that the client can act on: every 4xx, including its own limits (429), and an engine's refusal after a status
  of success;
- requests superseded by a newer keystroke, and requests whose client left before the first text;
- offline requests, which have no objective;
- answers without measurements: those that read another request's generation and got no text of it.

Requests refused for lack of room while their organization exceeded its share count for the organization, but not for
the deployment, which had room for the others. A client that left after the first text got an answer, and its request is
judged by that.
"""

from __future__ import annotations

import msgspec

from contracts.errors import ContextTooLong, EngineRefused, InvalidField, UnsupportedField
from contracts.objectives import Objective
from contracts.service_class import ServiceClass

CLIENT_GONE = "client_gone"
SUPERSEDED = "superseded"
REFUSED = (EngineRefused.code, ContextTooLong.code, InvalidField.code, UnsupportedField.code)
"""Codes of refusals of the request itself, by an engine or its driver. In a stream they may come after the status: if a
client's grammar exceeds its limits, or the request had waited."""


_NO_FAULT = ", ".join(f"'{code}'" for code in (CLIENT_GONE, SUPERSEDED, *REFUSED))
FAILED = (
    "(request_traces.status >= 500 OR request_traces.status < 300"
    f" AND coalesce(request_traces.error_code, '{CLIENT_GONE}') NOT IN ({_NO_FAULT}))"
)
"""`failed` in SQL, over rows of `gateway.request_traces`: the only text by which SQL decides it."""


class TraceRow(msgspec.Struct, frozen=True, kw_only=True):
    """The columns of `gateway.request_traces` that decide the judgement."""

    status: int
    error_code: str | None = None
    total_ms: float
    ttft_ms: float | None = None
    tpot_ms: float | None = None
    itl_max_ms: float | None = None
    completion_tokens: int | None = None
    over_share: bool | None = None
    service_class: str | None = None


class Judgement(msgspec.Struct, frozen=True):
    """The figures that one request kept. A request that is not counted keeps and breaks none."""

    counted: bool = False
    ttft_kept: bool = False
    tpot_kept: bool = False
    gap_kept: bool = False
    over_share: bool = False
    """Whether it failed by its own organization's excess; then it does not count for the deployment."""

    @property
    def good(self) -> bool:
        """Whether it counted and kept every figure."""
        return self.ttft_kept and self.tpot_kept and self.gap_kept


def failed(row: TraceRow) -> bool:
    """Whether a request failed by the platform's fault: with a 5xx, including shed ones (503), or after its status."""
    broke_off = row.status < 300 and row.error_code not in (None, CLIENT_GONE, SUPERSEDED, *REFUSED)
    return row.status >= 500 or broke_off


def answered(row: TraceRow) -> bool:
    """Whether the client got its answer, or as much of it as it wanted."""
    if not 200 <= row.status < 300:
        return False
    if row.error_code is None:
        return row.ttft_ms is not None or row.completion_tokens is not None
    return row.error_code == CLIENT_GONE and row.ttft_ms is not None


def judge(row: TraceRow, objective: Objective | None) -> Judgement:
    """The judgement of a request by the objective of its tier and length; None if it has none. Offline requests have
    none."""
    if objective is None or row.service_class == ServiceClass.OFFLINE:
        return Judgement()
    if failed(row):
        return Judgement(counted=True, over_share=bool(row.over_share))
    if not answered(row):
        return Judgement()
    first_ms = row.total_ms if row.ttft_ms is None else row.ttft_ms  # without text, the end is the first event
    return Judgement(
        True,
        first_ms <= objective.ttft_ms,
        _kept(row.tpot_ms, objective.tpot_ms),
        _kept(row.itl_max_ms, objective.itl_max_ms),
    )


def _kept(measured_ms: float | None, promised_ms: float | None) -> bool:
    """Whether a time is within its objective. A missing one is not late: a single token has no time per token."""
    return promised_ms is None or measured_ms is None or measured_ms <= promised_ms
