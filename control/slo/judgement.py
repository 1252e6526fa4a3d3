"""Whether one request kept its objective, in plain Python: the rules, and what `judged.py` must equal in SQL.

Answered requests count, and requests that failed by our fault. These do not count, as they say nothing about us:

- refusals the client can act on: every 4xx, limits of its own (429) among them, and what an engine refuses behind a
  status that said it was served;
- requests superseded by a newer keystroke, and those whose client left before the first text;
- what is offline, which was promised nothing;
- answers of which nothing was measured: those that read another request's generation and got no text of it.

Requests refused for lack of room while their organization requested more than its share count for the organization, and
not for the deployment, which had room for the others.

A client that left behind the first text has had an answer, and it is judged by what it had.
"""

from __future__ import annotations

import msgspec

from contracts.errors import ContextTooLong, EngineRefused, InvalidField, UnsupportedField
from contracts.objectives import Objective
from contracts.service_class import ServiceClass

CLIENT_GONE = "client_gone"
SUPERSEDED = "superseded"
REFUSED = (EngineRefused.code, ContextTooLong.code, InvalidField.code, UnsupportedField.code)
"""Codes of refusals of the request itself, by an engine or its driver. In a stream they may come after the status, as
when a client's grammar grows beyond its limits, or when the request had waited."""


_NO_FAULT = ", ".join(f"'{code}'" for code in (CLIENT_GONE, SUPERSEDED, *REFUSED))
FAILED = (
    "(request_traces.status >= 500 OR request_traces.status < 300"
    f" AND coalesce(request_traces.error_code, '{CLIENT_GONE}') NOT IN ({_NO_FAULT}))"
)
"""`failed`, in SQL, over rows of `gateway.request_traces`: the one text by which all of SQL decides it."""


class TraceRow(msgspec.Struct, frozen=True, kw_only=True):
    """The columns of `gateway.request_traces` that decide."""

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
    """What one request kept. One that is not counted keeps nothing, and breaks nothing."""

    counted: bool = False
    ttft_kept: bool = False
    tpot_kept: bool = False
    gap_kept: bool = False
    over_share: bool = False
    """It failed by its own organization's excess: not counted for the deployment."""

    @property
    def good(self) -> bool:
        """Counted, and every objective kept."""
        return self.ttft_kept and self.tpot_kept and self.gap_kept


def failed(row: TraceRow) -> bool:
    """By our fault: a 5xx, shed requests (503) among them, or a stream that broke off behind its status."""
    broke_off = row.status < 300 and row.error_code not in (None, CLIENT_GONE, SUPERSEDED, *REFUSED)
    return row.status >= 500 or broke_off


def answered(row: TraceRow) -> bool:
    """The client had what it waited for, or as much as it wanted of it."""
    if not 200 <= row.status < 300:
        return False
    if row.error_code is None:
        return row.ttft_ms is not None or row.completion_tokens is not None
    return row.error_code == CLIENT_GONE and row.ttft_ms is not None


def judge(row: TraceRow, objective: Objective | None) -> Judgement:
    """The judgement of a request by the objective of its tier and length; None: nothing was promised it, nor is what
    is offline."""
    if objective is None or row.service_class == ServiceClass.OFFLINE:
        return Judgement()
    if failed(row):
        return Judgement(counted=True, over_share=bool(row.over_share))
    if not answered(row):
        return Judgement()
    first_ms = row.total_ms if row.ttft_ms is None else row.ttft_ms  # an answer without text: its end was its beginning
    return Judgement(
        True,
        first_ms <= objective.ttft_ms,
        _kept(row.tpot_ms, objective.tpot_ms),
        _kept(row.itl_max_ms, objective.itl_max_ms),
    )


def _kept(measured_ms: float | None, promised_ms: float | None) -> bool:
    """One token has no time behind it: what is not there is not late."""
    return promised_ms is None or measured_ms is None or measured_ms <= promised_ms
