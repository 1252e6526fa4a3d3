"""Settings of the router process."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated

import msgspec

from contracts.fixed import Fixed
from contracts.generation import Tier
from contracts.length_class import LONG_TOKENS, MEDIUM_TOKENS
from contracts.metrics import MetricsConfig

Port = Annotated[int, msgspec.Meta(ge=0, le=65_535)]


class SloClass(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Prompts of one tier up to a length, and their service level objectives. With one objective for all lengths, long
    prompts would distort the statistics of short ones."""

    tier: Tier
    """`chat` or `autocomplete`."""
    prompt_tokens: Annotated[int, msgspec.Meta(ge=1)]
    """Longest prompt of the class."""
    ttft_s: Annotated[float, msgspec.Meta(gt=0)]
    """Objective for the time to first token, measured from the lease request."""
    tpot_s: Annotated[float, msgspec.Meta(ge=0)] = 0.04
    """Objective for the mean time per further token; 0 for none. The router delays new prompts that would slow running
    streams beyond it."""


def slo_of(slos: Iterable[SloClass], tier: Tier, prompt_tokens: int) -> SloClass | None:
    """The objectives of a prompt: its class, in order of length, or the tier's last class if the prompt is longer than
    all; None if the tier has no objective."""
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
    """The limit on concurrent requests of a replica that reports no capacity. The router learns it, within these
    bounds, from the duration of responses. A replica's own report takes precedence. A pool's `max_concurrency` is both
    the maximum and the initial limit."""

    def __post_init__(self) -> None:
        if not self.min_limit <= self.initial <= self.max_limit:
            raise ValueError(
                "must have min_limit <= initial <= max_limit, not "
                f"{self.min_limit}, {self.initial} and {self.max_limit}"
            )

    learn: bool = True
    """If false, such a replica gets at most `initial` concurrent requests, or its pool's limit."""
    initial: Annotated[int, msgspec.Meta(ge=1, le=1_000_000)] = 64
    """Initial limit, before anything was learnt. It rises with each early first token."""
    min_limit: Fixed[Annotated[int, msgspec.Meta(ge=1, le=1_000_000)]] = 1
    """Lower bound of the limit; at most `initial`."""
    max_limit: Annotated[int, msgspec.Meta(ge=1, le=1_000_000)] = 1_024
    """Upper bound of the limit; at least `initial`. It also bounds the requests of a replica that reports its memory
    but not its concurrency."""


class RouterConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The router's listeners, polls, queues and placement."""

    host: str = "127.0.0.1"
    """Address to listen on."""
    port: Port = 8100
    """TCP port of the lease protocol; 0 selects a free one."""
    socket: str | None = None
    """Unix socket to listen on in addition, for gateways on the same machine. A message costs less CPU there."""
    control_port: Port = 8101
    """gRPC port on `host` of the control service (`slipstream fleet`, `slipstream router explain`, grpc.health.v1,
    reflection); 0 selects a free one."""
    metrics: MetricsConfig = MetricsConfig()
    """The router's Prometheus metrics."""
    policy: str = "prefix"
    """Choice among the replicas that can take a request. `prefix`: the one that would respond first, including the
    delay to other requests. `least_load`: the one with the fewest leases for its weight. `consistent_hash`: the
    session's own replica while its load allows. `round_robin`: each in turn."""
    queue_length: Fixed[Annotated[int, msgspec.Meta(ge=0, le=1_000_000)]] = 1_000
    """Maximum number of requests that wait per pool. Further ones are refused at once with 503 `overloaded`."""
    slos: tuple[SloClass, ...] = SLOS
    """Objectives for the time to first token by tier and prompt length, shortest prompts first. The router sends a
    request to an engine while the objective can be met there; otherwise the request waits. Without objectives, engines
    are filled to `max_concurrency`. The router places requests by these objectives, and `slo.objectives` judge them. If
    this is unset and a tier runs on processors (`engine.device = "cpu"`), `up` uses objectives that a processor can
    meet: 5 s for short chats, 30 s otherwise."""
    shed_objective: Annotated[float, msgspec.Meta(ge=0, le=1)] = 0.005
    """Share of requests that may be refused because a pool is full. Metrics show it next to the measured share, for
    alerts. It does not affect the router's decisions."""
    kv_reserve: Fixed[Annotated[float, msgspec.Meta(ge=0, le=0.9)]] = 0.02
    """Share of an engine's KV memory that the router never allocates, as a reserve for usage that the engine's last
    report did not include."""
    prefix_blocks: Fixed[Annotated[int, msgspec.Meta(ge=1_000)]] = 1_000_000
    """Number of prompt blocks remembered per pool, over all replicas. Each takes about 100 bytes, and at most 200."""
    prefix_blocks_per_replica: Fixed[Annotated[int, msgspec.Meta(ge=1)]] = 32_000
    """Number of blocks assumed for a replica that does not report its KV capacity."""
    adapter_load_s: Fixed[Annotated[float, msgspec.Meta(ge=0, le=600)]] = 1.0
    """Time that loading a LoRA adapter is assumed to add to the time to first token on a replica that has not loaded
    it. A request goes to such a replica only if it would still respond sooner there."""
    adapter_recent_s: Fixed[Annotated[float, msgspec.Meta(ge=0, le=86_400)]] = 60.0
    """Time after which an organization loses its share of a replica's adapter slots if none of its adapters there was
    used. Other organizations' adapters can then replace its own."""
    concurrency: ConcurrencyConfig = ConcurrencyConfig()
    """Limits on the concurrent requests of a replica that reports no capacity of its own."""
    explain_records: Fixed[Annotated[int, msgspec.Meta(ge=0, le=10_000_000)]] = 5_000
    """Number of decisions remembered for `slipstream router explain`, about 2 kB each. The oldest are removed first."""
    explain_share: Fixed[Annotated[float, msgspec.Meta(ge=0, le=1)]] = 1.0
    """Share of requests whose decisions are remembered. Refusals are always remembered."""
    event_log: str = ""
    """File that records every event of the router's core, for `slipstream router replay`. Empty: none."""
    event_log_bytes: Fixed[Annotated[int, msgspec.Meta(ge=1_000_000)]] = 1_000_000_000
    """Maximum size of the event log."""
    silence_s: Fixed[Annotated[float, msgspec.Meta(ge=0.01, le=3_600)]] = 10.0
    """Time without any message, including pings, after which a gateway counts as disconnected."""
    grace_s: Fixed[Annotated[float, msgspec.Meta(ge=0.1, le=3_600)]] = 10.0
    """How long a gateway's leases outlive its connection."""
    poll_interval_s: Fixed[Annotated[float, msgspec.Meta(ge=0.01, le=60)]] = 1.0
    """Time between two polls of a healthy replica."""
    recovery_interval_s: Fixed[Annotated[float, msgspec.Meta(ge=0.01, le=60)]] = 0.25
    """Interval between two polls of an unhealthy replica. One successful poll makes it healthy."""
    probe_timeout_s: Annotated[float, msgspec.Meta(ge=0.01, le=60)] = 2.0
    """A replica that does not answer within this time fails the poll."""
    failure_threshold: Fixed[Annotated[int, msgspec.Meta(ge=1, le=100)]] = 3
    """Number of consecutive failed polls after which a healthy replica gets no more requests. A fault reported by a
    gateway counts as all of them but one."""
    retry_after_s: Fixed[Annotated[float, msgspec.Meta(ge=0.1, le=600)]] = 2.0
    """The Retry-After that clients get when no engine is healthy, because the end of that state cannot be predicted."""
    stream_messages: Fixed[Annotated[int, msgspec.Meta(ge=1)]] = 20_000
    """Maximum number of messages for a gateway that does not read. Beyond it, its stream is closed and it reconnects.
    """
    max_version_jump: Fixed[Annotated[int, msgspec.Meta(ge=1, le=1_000_000_000)]] = 10_000
    """Largest accepted step from the current version of the desired state to a new one. A larger step is refused and
    logged. A router that has just started and has no version accepts any."""
    drain_timeout_s: Fixed[Annotated[float, msgspec.Meta(ge=0, le=600)]] = 2.0
    """Longest time after SIGTERM for pending responses to be sent before the streams are closed."""
