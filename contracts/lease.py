"""The right to run one attempt on one engine, and the report of its end.

The gateway mints the lease id, so acquiring twice with one id is one lease. Durations, never wall-clock times, cross
the process boundary.
"""

from __future__ import annotations

import msgspec

from contracts.generation import Tier
from contracts.usage import Finish, Usage


class Engine(msgspec.Struct, frozen=True):
    """The fields of a replica that the gateway needs to send it a request."""

    replica_id: str
    url: str
    driver: str
    """Name of the driver that speaks its dialect: `embedded`, `sglang`, `openai`."""
    model: str
    """The name this engine serves the model under."""
    pool: str = ""
    """The pool it belongs to; empty when a router of an older release granted it."""
    bootstrap_port: int = 0
    """Port from which decode engines fetch a prefill engine's keys and values; 0: it is no prefill engine."""


class LeaseRequest(msgspec.Struct, frozen=True):
    """A request to the router for a slot for one attempt."""

    lease_id: str
    request_id: str
    attempt: int
    tier: Tier
    model: str
    prompt_tokens: int
    max_output_tokens: int
    """Sum over all choices."""
    deadline_s: float
    """Longest wait for a grant."""
    organization_id: str = ""
    """The tenant: fair shares of a full pool are between tenants."""
    prefix_kind: str = ""
    """`bytes` or `tokens`, see `contracts.prefix.PrefixChain`."""
    prefix_hashes: bytes = b""
    """The chain of `contracts.prefix`: 16 bytes for each whole block, joined."""
    excluded_replicas: tuple[str, ...] = ()
    """Replicas on which an earlier attempt of this request failed."""
    session_id: str = ""
    """Requests of one conversation or editor, by the client's own name; empty: none given."""
    unit: int = 0
    """The session as `contracts.split.unit_of` numbers it: it stays on one side of a split. 0: the gateway knows of no
    split."""
    priority: int = 0
    """Class: where a pool is full, a higher one goes first and a lower one is shed first. Below 0 is background work:
    it gets the capacity that others leave, and its refusal breaks no promise."""
    share: float = 1.0
    """The tenant's weight among waiting tenants: twice the share, twice the tokens."""
    project_id: str = ""
    """The project, for turns within the tenant; empty: the gateway sends none."""
    project_share: float = 1.0
    """The project's weight among the tenant's projects that wait."""
    affinity: bytes = b""
    """Opaque group of the request, such as the file it completes. Asks with the same affinity have the same position on
    the ring of replicas; empty: the session or the beginning of the prompt decides it."""
    idle_replica: str = ""
    """For background work: only this replica will do, and only while it is idle. Such an ask never waits, and its
    refusal counts for no tenant."""
    traceparent: str = ""
    """Trace context of the span that asks, in W3C form; empty: no spans are made."""
    pool: str = ""
    """The pool that is to serve it, regardless of the model's split; the gateway lets only the deployment's own
    requests name one. Empty: the model's."""
    adapter: str = ""
    """The engines' name for the LoRA adapter that it needs; empty: none."""

    @property
    def tokens(self) -> int:
        """Most tokens that a lease of it holds."""
        return self.prompt_tokens + self.max_output_tokens


class Lease(msgspec.Struct, frozen=True):
    """A slot on an engine, granted to one attempt of a request."""

    lease_id: str
    engine: Engine
    queued_s: float = 0.0
    """Time spent in the router's queue, by the router's clock."""
    load_adapter: bool = False
    """The engine is not known to hold the ask's adapter: load it first."""
    evict_adapter: str = ""
    """Unload this adapter first: the engine holds its maximum. Empty: none."""
    prefill: Engine | None = None
    """The engine that computes the prompt for `engine`, which then only generates; None: `engine` does both."""
    no_drafts: bool = False
    """The engine should draft no tokens for it: the pool's load is above its governor's threshold."""


class LeaseEnd(msgspec.Struct, frozen=True):
    """The end of a lease; corrects the router's picture of the engine."""

    lease_id: str
    finish: Finish
    usage: Usage = Usage()
    engine_fault: bool = False
    """The engine failed (refused connection, 5xx, broke off), as opposed to the client leaving."""
    engine_full: bool = False
    """The engine refused it because it is full (429, 503), which is no fault."""
    adapter_missing: bool = False
    """The engine does not hold the adapter: it could not be loaded, or the engine has lost it. No fault either."""
    prefill_fault: bool = False
    """The lease's prefill engine failed, and `engine` did not."""


def prefill_id(lease_id: str) -> str:
    """The key of a lease's slot on its prefill engine, held from the grant to the first token."""
    return f"{lease_id}/prefill"


class HeldLease(msgspec.Struct, frozen=True):
    """A granted lease that has not been released, as a gateway keeps it and names it to the router in a hello."""

    lease_id: str
    replica_id: str
    prompt_tokens: int
    max_output_tokens: int
