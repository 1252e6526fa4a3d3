"""The right to run one attempt on one engine, and what was reported when it ended.

The gateway mints the lease id, so acquiring twice with one id is one lease. Durations, never wall-clock times, cross
the process boundary.
"""

from __future__ import annotations

import msgspec

from contracts.generation import Tier
from contracts.usage import Finish, Usage


class Engine(msgspec.Struct, frozen=True):
    """One replica as the gateway needs it to send a request."""

    replica_id: str
    url: str
    driver: str
    """Name of the driver that speaks its dialect: `embedded`, `sglang`, `openai`."""
    model: str
    """The name this engine serves the model under."""
    pool: str = ""
    """The pool it belongs to; empty when a router of an older release granted it."""
    bootstrap_port: int = 0
    """Where a prefill engine gives away what it computed; 0: it is none."""


class LeaseRequest(msgspec.Struct, frozen=True):
    """What the router is asked: a place for one attempt."""

    lease_id: str
    request_id: str
    attempt: int
    tier: Tier
    model: str
    prompt_tokens: int
    max_output_tokens: int
    """All choices together."""
    deadline_s: float
    """How long the caller is willing to wait for a grant."""
    organization_id: str = ""
    """The tenant: fair shares of a full pool are between tenants."""
    prefix_kind: str = ""
    """`bytes` or `tokens`, as in `contracts.prefix.PrefixChain`."""
    prefix_hashes: bytes = b""
    """The chain of `contracts.prefix`: 16 bytes for each whole block, joined."""
    excluded_replicas: tuple[str, ...] = ()
    """Replicas on which an earlier attempt of this request failed."""
    session_id: str = ""
    """Requests of one conversation or editor, as the client names it; empty: it does not."""
    unit: int = 0
    """The session as `contracts.split.unit_of` numbers it: what stays on one side of a split. 0: the gateway knows of
    no split."""
    priority: int = 0
    """Class: where a pool is full, a higher one goes first and a lower one is shed first. Below 0 nobody waits for it:
    it gets what others leave over, and its refusal is nothing that was promised."""
    share: float = 1.0
    """The tenant's weight among tenants that wait: twice the share, twice the tokens."""
    project_id: str = ""
    """Whose turn it is within the tenant; empty: the gateway does not say."""
    project_share: float = 1.0
    """The project's weight among the tenant's projects that wait."""
    affinity: bytes = b""
    """Opaque: what the request belongs with, such as the file it completes. Asks with the same one have the same place
    on the ring of replicas; empty: their session has, or how their prompts begin."""
    idle_replica: str = ""
    """For work that nobody waits for: only this replica will do, and only while it serves nobody. Such an ask never
    waits, and its refusal counts as nobody's."""
    traceparent: str = ""
    """Of the span that asks, as W3C writes it; empty: no spans are made."""
    pool: str = ""
    """The pool that is to serve it, whatever the model's split says; the gateway lets only the deployment's own
    requests name one. Empty: the model's."""
    adapter: str = ""
    """The engines' name for the LoRA adapter that it needs; empty: none."""

    @property
    def tokens(self) -> int:
        """The most that a lease of it holds."""
        return self.prompt_tokens + self.max_output_tokens


class Lease(msgspec.Struct, frozen=True):
    """A place on an engine, granted to one attempt of a request."""

    lease_id: str
    engine: Engine
    queued_s: float = 0.0
    """Time spent in the router's queue, by the router's clock."""
    load_adapter: bool = False
    """The engine is not known to hold the ask's adapter: load it first."""
    evict_adapter: str = ""
    """Unload this one before: the engine holds as many as it may. Empty: none."""
    prefill: Engine | None = None
    """Computes the prompt for `engine`, which then only writes the answer; None: `engine` does both."""
    no_drafts: bool = False
    """The engine is to guess no tokens ahead for it: the pool's load is beyond what its governor allows."""


class LeaseEnd(msgspec.Struct, frozen=True):
    """How a lease ended; corrects the router's picture of the engine."""

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
    """What a lease's place on its prefill engine is filed under, held from the grant to the first token."""
    return f"{lease_id}/prefill"


class HeldLease(msgspec.Struct, frozen=True):
    """A granted lease that has not been released, as a gateway keeps it and names it to the router in a hello."""

    lease_id: str
    replica_id: str
    prompt_tokens: int
    max_output_tokens: int
