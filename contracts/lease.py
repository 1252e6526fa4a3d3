"""The right to run one attempt on one engine, and the report of its end.

The gateway mints the lease id, so two acquisitions with one id are one lease. Durations, never wall-clock times, cross
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
    """Name of the driver that speaks the engine's dialect: `embedded`, `sglang`, `openai`."""
    model: str
    """The name under which this engine serves the model."""
    pool: str = ""
    """The replica's pool; empty if a router of an older release granted the lease."""
    bootstrap_port: int = 0
    """Port from which decode engines fetch a prefill engine's keys and values; 0 if it is not a prefill engine."""


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
    """The tenant; tenants share a full pool fairly."""
    prefix_kind: str = ""
    """`bytes` or `tokens`, see `contracts.prefix.PrefixChain`."""
    prefix_hashes: bytes = b""
    """The chain of `contracts.prefix`: 16 bytes for each whole block, joined."""
    excluded_replicas: tuple[str, ...] = ()
    """Replicas on which an earlier attempt of this request failed."""
    session_id: str = ""
    """The client's own name for a conversation or an editor; empty if it gives none."""
    unit: int = 0
    """The session's number from `contracts.split.unit_of`, which keeps it on one side of a split; 0 without a split."""
    priority: int = 0
    """The class: a full pool serves higher priorities first and sheds lower ones first. Below 0 is background work: it
    gets the capacity that others leave, and its refusal breaks no promise."""
    share: float = 1.0
    """The tenant's weight among waiting tenants: twice the share, twice the tokens."""
    project_id: str = ""
    """The project, for turns within the tenant; empty if the gateway sends none."""
    project_share: float = 1.0
    """The project's weight among the tenant's waiting projects."""
    affinity: bytes = b""
    """Opaque group of the request, such as the file it completes. Requests with the same affinity have the same
    position on the ring of replicas; if empty, the session or the prompt's beginning decides it."""
    idle_replica: str = ""
    """For background work: the only replica, of a pair the only decode engine, that may serve it, and only while idle.
    Such a request never waits, and its refusal counts for no tenant."""
    traceparent: str = ""
    """W3C trace context of the requesting span; empty if no spans are recorded."""
    pool: str = ""
    """The pool that must serve the request, regardless of the model's split; empty for the model's pool. The gateway
    lets only the deployment's own requests name one."""
    adapter: str = ""
    """The engines' name for the LoRA adapter that the request needs; empty for none."""

    @property
    def tokens(self) -> int:
        """The most tokens that a lease for this request holds."""
        return self.prompt_tokens + self.max_output_tokens


class Lease(msgspec.Struct, frozen=True):
    """A slot on an engine, granted to one attempt of a request."""

    lease_id: str
    engine: Engine
    queued_s: float = 0.0
    """Time spent in the router's queue, by the router's clock."""
    load_adapter: bool = False
    """The engine is not known to hold the request's adapter, so the gateway must load it first."""
    evict_adapter: str = ""
    """The adapter to unload first, because the engine holds its maximum; empty for none."""
    prefill: Engine | None = None
    """The engine that computes the prompt for `engine`, which then only generates; None if `engine` does both."""
    no_drafts: bool = False
    """Whether the engine should draft no tokens, because the pool's load is above its governor's threshold."""


class LeaseEnd(msgspec.Struct, frozen=True):
    """The end of a lease; it corrects the router's record of the engine."""

    lease_id: str
    finish: Finish
    usage: Usage = Usage()
    engine_fault: bool = False
    """The engine failed (refused connection, 5xx, broke off), as opposed to the client leaving."""
    engine_full: bool = False
    """The engine refused the request because it is full (429, 503), which is not a fault."""
    adapter_missing: bool = False
    """The engine does not hold the adapter: it could not load it, or has lost it. This is not a fault either."""
    prefill_fault: bool = False
    """The lease's prefill engine failed, but `engine` did not."""


def prefill_id(lease_id: str) -> str:
    """The key of a lease's slot on its prefill engine, held from the grant to the first token."""
    return f"{lease_id}/prefill"


class HeldLease(msgspec.Struct, frozen=True):
    """A granted lease that has not been released, as a gateway keeps it and reports it to the router in a hello."""

    lease_id: str
    replica_id: str
    prompt_tokens: int
    max_output_tokens: int
