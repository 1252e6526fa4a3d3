"""Settings of the router process."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated

import msgspec

from contracts.generation import Tier
from contracts.length_class import LONG_TOKENS, MEDIUM_TOKENS
from contracts.metrics import MetricsConfig

Port = Annotated[int, msgspec.Meta(ge=0, le=65_535)]


class SloClass(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Prompts of one tier up to a length, and their service level objectives. One figure for all lengths would
    let long prompts ruin the short ones' statistics, or hide behind them."""

    tier: Tier
    """`chat` or `autocomplete`."""
    prompt_tokens: Annotated[int, msgspec.Meta(ge=1)]
    """Longest prompt of the class."""
    ttft_s: Annotated[float, msgspec.Meta(gt=0)]
    """Objective for the time to first token, from the moment the router is asked."""
    tpot_s: Annotated[float, msgspec.Meta(ge=0)] = 0.04
    """Objective for the mean time per further token; 0: none. New prompts are held back where they would slow running
    streams beyond it."""


def slo_of(slos: Iterable[SloClass], tier: Tier, prompt_tokens: int) -> SloClass | None:
    """What a prompt is promised: its class, by rising length, or the tier's last when it is longer than all; None:
    nothing."""
    found = None
    for slo in slos:
        if slo.tier is tier:
            found = slo
            if prompt_tokens <= slo.prompt_tokens:
                break
    return found


SLOS = (
    SloClass(Tier.AUTOCOMPLETE, 1 << 31, 0.2),
    SloClass(Tier.CHAT, MEDIUM_TOKENS - 1, 0.7),
    SloClass(Tier.CHAT, LONG_TOKENS - 1, 2.0),
    SloClass(Tier.CHAT, 65_536, 5.0),
    SloClass(Tier.CHAT, 1 << 31, 15.0),
)


class ConcurrencyConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How many requests a replica is given at a time that reports no capacity of its own: learnt from how long its
    answers take, between these bounds. What a replica reports goes before, and a pool's `max_concurrency` is its
    ceiling, and where it begins."""

    def __post_init__(self) -> None:
        if not self.min_limit <= self.initial <= self.max_limit:
            raise ValueError(
                "must have min_limit <= initial <= max_limit, not "
                f"{self.min_limit}, {self.initial} and {self.max_limit}"
            )

    learn: bool = True
    """false: such replicas are given `initial` requests at a time, or what their pool says."""
    initial: Annotated[int, msgspec.Meta(ge=1, le=1_000_000)] = 64
    """Where the limit begins while nothing is known. It rises with every first token that comes early."""
    min_limit: Annotated[int, msgspec.Meta(ge=1, le=1_000_000)] = 1
    """It falls no further; at most `initial`."""
    max_limit: Annotated[int, msgspec.Meta(ge=1, le=1_000_000)] = 1_024
    """It rises no further; at least `initial`. Also what a replica is given at most that reports its memory, but not
    how many requests it runs at a time."""


class RouterConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How the router listens, polls engines, queues and places."""

    host: str = "127.0.0.1"
    """Address to listen on."""
    port: Port = 8100
    """TCP port of the lease protocol; 0 takes any free one."""
    socket: str | None = None
    """Unix socket to listen on as well, for gateways of the same machine: a message costs less there."""
    control_port: Port = 8101
    """gRPC port on `host` of the control service (`slipstream fleet`, `slipstream router explain`, grpc.health.v1,
    reflection); 0 takes any free one."""
    metrics: MetricsConfig = MetricsConfig()
    """The router's Prometheus metrics."""
    policy: str = "prefix"
    """How a replica is chosen among those that could take the request. `prefix`: where it would begin to answer first,
    counting what that costs the others; `least_load`: the fewest leases for its weight; `consistent_hash`: a session's
    own while its load allows; `round_robin`: each in turn."""
    queue_length: Annotated[int, msgspec.Meta(ge=0, le=1_000_000)] = 1_000
    """Requests that may wait per pool; beyond it they are refused at once, with 503 `overloaded`."""
    slos: tuple[SloClass, ...] = SLOS
    """Time to first token by tier and prompt length, shortest prompts first. A request is sent to an engine while its
    objective can be met there, else it waits for its turn; without any, engines are filled to `max_concurrency`.
    The router places requests by these; `slo.objectives` judge them. If this is not set, `up` promises latencies that a
    processor keeps for tiers that it serves on processors (`engine.device = "cpu"`): 5 s for short chats, 30 s else."""
    shed_objective: Annotated[float, msgspec.Meta(ge=0, le=1)] = 0.005
    """Part of the requests that may be refused for lack of room, shown beside the measured part in the metrics. It is
    for alerts; nothing is decided by it."""
    kv_reserve: Annotated[float, msgspec.Meta(ge=0, le=0.9)] = 0.02
    """Part of an engine's KV memory that is never given to anyone: what its report could not know."""
    prefix_blocks: Annotated[int, msgspec.Meta(ge=1_000)] = 1_000_000
    """Prompt blocks remembered per pool, over all replicas; about 100 bytes each, never more than 200."""
    prefix_blocks_per_replica: Annotated[int, msgspec.Meta(ge=1)] = 32_000
    """Blocks a replica is taken to hold when it does not report its KV capacity."""
    adapter_load_s: Annotated[float, msgspec.Meta(ge=0, le=600)] = 1.0
    """What loading a LoRA adapter is taken to add to the time to first token, where a replica does not hold it: a
    request goes elsewhere than to one that does only where that is sooner all the same."""
    adapter_recent_s: Annotated[float, msgspec.Meta(ge=0, le=86_400)] = 60.0
    """An organization none of whose adapters on a replica was used for so long has no share of that replica's places
    for adapters: those of others may be loaded in the place of its own."""
    concurrency: ConcurrencyConfig = ConcurrencyConfig()
    """How many requests a replica is given at a time that reports no capacity of its own."""
    explain_records: Annotated[int, msgspec.Meta(ge=0, le=10_000_000)] = 5_000
    """Decisions remembered for `slipstream router explain`, about 2 kB each; the oldest are forgotten."""
    explain_share: Annotated[float, msgspec.Meta(ge=0, le=1)] = 1.0
    """Part of the requests whose decisions are remembered. Refusals always are."""
    event_log: str = ""
    """File that receives every event of the core, to be replayed with `slipstream router replay`; empty: none."""
    event_log_bytes: Annotated[int, msgspec.Meta(ge=1_000_000)] = 1_000_000_000
    """Beyond this size the event log stops growing."""
    silence_s: Annotated[float, msgspec.Meta(ge=0.01, le=3_600)] = 10.0
    """A gateway that has sent nothing for this long, not even its pings, is taken for disconnected."""
    grace_s: Annotated[float, msgspec.Meta(ge=0.1, le=3_600)] = 10.0
    """How long the leases of a gateway outlive its connection."""
    poll_interval_s: Annotated[float, msgspec.Meta(ge=0.01, le=60)] = 1.0
    """Time between two polls of a healthy replica."""
    recovery_interval_s: Annotated[float, msgspec.Meta(ge=0.01, le=60)] = 0.25
    """Time between two polls of a replica that is not healthy; one success brings it back."""
    probe_timeout_s: Annotated[float, msgspec.Meta(ge=0.01, le=60)] = 2.0
    """A replica that does not answer a poll within this time has failed it."""
    failure_threshold: Annotated[int, msgspec.Meta(ge=1, le=100)] = 3
    """Polls that must fail in a row before a healthy replica is given no more requests. A fault met by a gateway
    counts for all of them but one."""
    retry_after_s: Annotated[float, msgspec.Meta(ge=0.1, le=600)] = 2.0
    """What clients are told to wait when no engine is healthy, which nobody can predict."""
    stream_messages: Annotated[int, msgspec.Meta(ge=1)] = 20_000
    """Answers waiting for one gateway that does not read; beyond it its stream is closed and it reconnects."""
    max_version_jump: Annotated[int, msgspec.Meta(ge=1, le=1_000_000_000)] = 10_000
    """How many versions a desired state may be ahead of the one in force; one further ahead is refused and logged. A
    router that holds none, having just started, takes any."""
    drain_timeout_s: Annotated[float, msgspec.Meta(ge=0, le=600)] = 2.0
    """On SIGTERM, how long decided answers may take to leave before the streams are closed."""
