"""The journal's three records about one attempt: it was opened, it was placed on an engine, it was closed.

Encoded as arrays: a later version may add fields at the end, with defaults, and still read older journals. A `Closed`
is a whole ledger row by itself, so that shipping never has to look for the record it belongs to.
"""

from __future__ import annotations

import msgspec

from contracts.generation import Tier
from contracts.usage import Finish, Outcome, Purpose, Usage

LINE_CLOSED = b"x-slipstream-line-closed"
"""Header with the `Closed` record of a batch's line, in base64, for the worker, which bills it with the line's result.
No tenant's key gets it."""
AttemptKey = tuple[str, int]
"""(request id, attempt): the ledger's key."""


class Opened(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """An attempt was admitted. One for every attempt; written before the router is asked."""

    request_id: str
    attempt: int
    """0 for the first."""
    organization_id: str
    project_id: str
    key_id: str
    model: str
    """The public name."""
    tier: Tier
    endpoint: str
    """The path the client called, such as `/v1/completions`."""
    stream: bool
    max_tokens: int
    """Reserved output tokens of this attempt, all choices together."""
    prompt_tokens_estimate: int
    opened_at: float
    """Epoch seconds."""
    purpose: Purpose | None = None
    """The deployment's own purpose; such an attempt is never billed. None: a customer's."""
    adapter: str | None = None
    """The tenant's own change of the model, by their name for it; None: the model alone."""
    known_price: int | None = None
    """The version of the price that limits used and the ledger bills; 0: the model had none. None: not known, and the
    ledger takes the price that was valid when the request arrived."""
    offline: bool = False
    """It ran in the class `offline`, which may cost less."""

    @property
    def key(self) -> AttemptKey:
        """(request id, attempt)."""
        return self.request_id, self.attempt


class Placed(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The attempt is about to be sent to an engine: from here on tokens may exist. Written before the engine is called.

    `url` and `driver` are what recovery needs to ask that engine for the usage after a crash.
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
    """The attempt is over: its complete ledger row."""

    opened: Opened
    """The record the attempt was opened with; without `purpose` if its tenant ended it, and pays."""
    outcome: Outcome
    """Certainty of `usage`."""
    finish: Finish
    usage: Usage
    status: int
    """HTTP status the client was given; 499 when it left before it had one, 0 when it is not known (a crash)."""
    closed_at: float
    """Epoch seconds."""
    replica_id: str | None = None
    """None: the attempt reached no engine."""
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

    Two attempts of one request may meet on one engine and must not share an id there: aborting or asking after one
    would hit the other. Engines abort every id that begins with the one given (SGLang, and ours), so none may be the
    beginning of another either.
    """
    return request_id if attempt == 0 else f"{attempt}-{request_id}"


def earlier_engine_request_id(request_id: str, attempt: int) -> str:
    """The same as releases before named it; an attempt that one of them left open is still known by it."""
    return request_id if attempt == 0 else f"{request_id}-{attempt}"
