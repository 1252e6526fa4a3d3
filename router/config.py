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
    """Objective for the time to first token, from the moment the router is asked."""
    tpot_s: Annotated[float, msgspec.Meta(ge=0)] = 0.04
    """Objective for the mean time per further token; 0: none. The router holds new prompts back where they would slow
    running streams beyond it."""


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
    """The limit on concurrent requests of a replica that reports no capacity of its own. It is learnt, between these
    bounds, from the duration of responses. A replica's own report takes precedence. A pool's `max_concurrency` is both
    the ceiling and the initial limit."""

    def __post_init__(self) -> None:
        if not self.min_limit <= self.initial <= self.max_limit:
            raise ValueError(
                "must have min_limit <= initial <= max_limit, not "
                f"{self.min_limit}, {self.initial} and {self.max_limit}"
            )

    learn: bool = True
    """false: such replicas get `initial` requests at a time, or the limit of their pool."""
    initial: Annotated[int, msgspec.Meta(ge=1, le=1_000_000)] = 64
    """Initial limit while nothing is known. It rises with every first token that comes early."""
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
    """TCP port of the lease protocol; 0 takes any free one."""
    socket: str | None = None
    """Unix socket to listen on as well, for gateways of the same machine: a message costs less CPU there."""
    control_port: Port = 8101
    """gRPC port on `host` of the control service (`slipstream fleet`, `slipstream router explain`, grpc.health.v1,
    reflection); 0 takes any free one."""
    metrics: MetricsConfig = MetricsConfig()
    """The router's Prometheus metrics."""
    policy: str = "prefix"
    """Choice of a replica among those that could take the request. `prefix`: the one that would answer first, including
    the cost to other requests; `least_load`: the fewest leases for its weight; `consistent_hash`: the session's own
    replica while its load allows; `round_robin`: each in turn."""
    queue_length: Fixed[Annotated[int, msgspec.Meta(ge=0, le=1_000_000)]] = 1_000
    """Requests that may wait per pool; further ones are refused at once, with 503 `overloaded`."""
    slos: tuple[SloClass, ...] = SLOS
    """Time to first token by tier and prompt length, shortest prompts first. A request is sent to an engine while its
    objective can be met there, else it waits for its turn; without objectives, engines are filled to `max_concurrency`.
    The router places requests by these objectives; `slo.objectives` judge them. If this is not set, `up` promises
    latencies that a processor keeps for tiers that it serves on processors (`engine.device = "cpu"`): 5 s for short
    chats, 30 s otherwise."""
    shed_objective: Annotated[float, msgspec.Meta(ge=0, le=1)] = 0.005
    """Share of the requests that may be refused for lack of room, shown next to the measured share in the metrics. It
    serves alerts; the router decides nothing by it."""
    kv_reserve: Fixed[Annotated[float, msgspec.Meta(ge=0, le=0.9)]] = 0.02
    """Share of an engine's KV memory that the router never allocates: a reserve for usage that the engine's report
    could not include."""
    prefix_blocks: Fixed[Annotated[int, msgspec.Meta(ge=1_000)]] = 1_000_000
    """Prompt blocks remembered per pool, over all replicas; about 100 bytes each, never more than 200."""
    prefix_blocks_per_replica: Fixed[Annotated[int, msgspec.Meta(ge=1)]] = 32_000
    """Blocks assumed for a replica that does not report its KV capacity."""
    adapter_load_s: Fixed[Annotated[float, msgspec.Meta(ge=0, le=600)]] = 1.0
    """Time that loading a LoRA adapter is assumed to add to the time to first token on a replica that does not hold it.
    A request goes to such a replica only if it would still answer sooner there."""
    adapter_recent_s: Fixed[Annotated[float, msgspec.Meta(ge=0, le=86_400)]] = 60.0
    """An organization whose adapters on a replica have not been used for this long loses its share of that replica's
    adapter slots; other organizations' adapters may replace its own."""
    concurrency: ConcurrencyConfig = ConcurrencyConfig()
    """Limits on the concurrent requests of a replica that reports no capacity of its own."""
    explain_records: Fixed[Annotated[int, msgspec.Meta(ge=0, le=10_000_000)]] = 5_000
    """Decisions remembered for `slipstream router explain`, about 2 kB each; the oldest are forgotten."""
    explain_share: Fixed[Annotated[float, msgspec.Meta(ge=0, le=1)]] = 1.0
    """Share of the requests whose decisions are remembered. Refusals always are."""
    event_log: str = ""
    """File that receives every event of the core, for `slipstream router replay`; empty: none."""
    event_log_bytes: Fixed[Annotated[int, msgspec.Meta(ge=1_000_000)]] = 1_000_000_000
    """Beyond this size the event log stops growing."""
    silence_s: Fixed[Annotated[float, msgspec.Meta(ge=0.01, le=3_600)]] = 10.0
    """A gateway that has sent nothing for this long, not even a ping, counts as disconnected."""
    grace_s: Fixed[Annotated[float, msgspec.Meta(ge=0.1, le=3_600)]] = 10.0
    """Time for which the leases of a gateway outlive its connection."""
    poll_interval_s: Fixed[Annotated[float, msgspec.Meta(ge=0.01, le=60)]] = 1.0
    """Time between two polls of a healthy replica."""
    recovery_interval_s: Fixed[Annotated[float, msgspec.Meta(ge=0.01, le=60)]] = 0.25
    """Time between two polls of an unhealthy replica; one success brings it back."""
    probe_timeout_s: Annotated[float, msgspec.Meta(ge=0.01, le=60)] = 2.0
    """A replica that does not answer within this time fails the poll."""
    failure_threshold: Fixed[Annotated[int, msgspec.Meta(ge=1, le=100)]] = 3
    """Polls that must fail in a row before a healthy replica gets no more requests. A fault that a gateway reports
    counts for all of them but one."""
    retry_after_s: Fixed[Annotated[float, msgspec.Meta(ge=0.1, le=600)]] = 2.0
    """The Retry-After that clients get when no engine is healthy, a case whose end cannot be predicted."""
    stream_messages: Fixed[Annotated[int, msgspec.Meta(ge=1)]] = 20_000
    """Messages waiting for one gateway that does not read; beyond it its stream is closed and it reconnects."""
    max_version_jump: Fixed[Annotated[int, msgspec.Meta(ge=1, le=1_000_000_000)]] = 10_000
    """Largest accepted step from the version of the desired state in force to a new one; a larger step is refused and
    logged. A router that has just started and holds no version accepts any."""
    drain_timeout_s: Fixed[Annotated[float, msgspec.Meta(ge=0, le=600)]] = 2.0
    """On SIGTERM, longest time for decided answers to leave before the streams are closed."""
