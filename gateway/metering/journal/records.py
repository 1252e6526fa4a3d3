"""Defines the journal's three records of an attempt, which is opened, placed on an engine, and closed.

They are encoded as arrays, so that a later version may add fields at the end, with defaults, and still read older
journals. A `Closed` is a whole ledger row, so that shipping never has to find the attempt's other records.
"""

from __future__ import annotations

import msgspec

from contracts.generation import Tier
from contracts.usage import Finish, Outcome, Purpose, Usage

LINE_CLOSED = b"x-slipstream-line-closed"
"""Header with the `Closed` record of a batch's line, in base64, for the worker, which bills it with the line's result.
No tenant's key gets it."""
AttemptKey = tuple[str, int]
"""Request id and attempt, the ledger's key."""


class Opened(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """An attempt was admitted. Every attempt has one, which is written before the call to the router."""

    request_id: str
    attempt: int
    """Number of the attempt, from 0."""
    organization_id: str
    project_id: str
    key_id: str
    model: str
    """The model's public name."""
    tier: Tier
    endpoint: str
    """The endpoint's name, such as `completion`."""
    stream: bool
    max_tokens: int
    """Reserved output tokens of this attempt, all choices together."""
    prompt_tokens_estimate: int
    opened_at: float
    """Epoch seconds."""
    purpose: Purpose | None = None
    """The deployment's own purpose; such an attempt is never billed. None for a customer's."""
    adapter: str | None = None
    """The tenant's name of its adapter for the model; None for the model alone."""
    known_price: int | None = None
    """The version of the price that limits used and the ledger bills; 0 if the model had none. None if it was unknown:
    the ledger then uses the price that was valid when the request arrived."""
    offline: bool = False
    """Whether it ran in the class `offline`, which may cost less."""

    @property
    def key(self) -> AttemptKey:
        """(request id, attempt)."""
        return self.request_id, self.attempt


class Placed(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The attempt is about to be sent to an engine: from now on, tokens may exist. Written before the engine is called.

    After a crash, recovery needs `url` and `driver` to request the usage from that engine.
    """

    request_id: str
    attempt: int
    replica_id: str
    url: str
    driver: str
    pool: str = ""

    @property
    def key(self) -> AttemptKey:
        """(request id, attempt)."""
        return self.request_id, self.attempt


class Closed(msgspec.Struct, frozen=True, array_like=True, gc=False, kw_only=True):
    """The attempt has ended. The record is its complete ledger row."""

    opened: Opened
    """The record that opened the attempt; without `purpose` if its tenant ended it and pays for it."""
    outcome: Outcome
    """Certainty of `usage`."""
    finish: Finish
    usage: Usage
    status: int
    """HTTP status that the client got; 499 if it left before it had one, 0 if it is unknown (a crash)."""
    closed_at: float
    """Epoch seconds."""
    replica_id: str | None = None
    """None if the attempt reached no engine."""
    error_code: str | None = None
    """A code of `contracts/errors.py`."""
    phases_ms: dict[str, float] = {}
    billed: bool = False
    """Whether these tokens are charged. True for at most one attempt of a request, never for an unknown outcome."""
    pool: str | None = None
    driver: str | None = None

    @property
    def key(self) -> AttemptKey:
        """(request id, attempt)."""
        return self.opened.request_id, self.opened.attempt


def engine_request_id(request_id: str, attempt: int) -> str:
    """The engine's id for one attempt: `req_…` for the first, `1-req_…` for the next.

    Two attempts of one request may run on one engine and must not share an id there, because an abort or a query of one
    would affect the other. Engines abort every id that begins with the given one (SGLang, and the embedded engine), so
    none may be the beginning of another, either.
    """
    return request_id if attempt == 0 else f"{attempt}-{request_id}"


def earlier_engine_request_id(request_id: str, attempt: int) -> str:
    """The id that earlier releases used, by which an engine still knows an attempt that one of them left open."""
    return request_id if attempt == 0 else f"{request_id}-{attempt}"
