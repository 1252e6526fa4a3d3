"""Renders a snapshot for the terminal."""

from __future__ import annotations

from collections.abc import Iterator

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from slipstream.hints import command
from slipstream.money import told
from slipstream.top.snapshot import Load, PoolNow, Snapshot

TIERS = ("tier", "req/s", "goodput", "ttft p50", "p99", "tpot p50", "p99", "gap p99", "failed", "shed", "limited",
         "cached", "tok/s")  # fmt: skip
POOLS = ("pool", "replicas", "leases", "queued", "req/s", "goodput", "ttft p99", "tpot p99", "cached", "tok/s",
         "cost/h", "per M")  # fmt: skip
UNKNOWN = "-"


def picture(shot: Snapshot) -> RenderableType:
    """The whole screen."""
    return Group(*_parts(shot))


def problem(sentence: str) -> RenderableType:
    """The screen while no snapshot is available."""
    return Text(sentence, style="bold red")


def _parts(shot: Snapshot) -> Iterator[RenderableType]:
    gateways = "" if shot.gateways is None else f" · {shot.gateways} gateway{'' if shot.gateways == 1 else 's'}"
    yield Text(
        f"slipstream · {shot.at:%H:%M:%S} UTC · requests that ended in the last {shot.window_s} s{gateways}"
        f" · billed today {told(round(shot.billed_today_micro, -4), shot.currency)}",
        style="bold",
    )
    if shot.router is not None:
        yield Text(f"router: {shot.router}; `{command('status')}` shows the processes", style="red")
    if not shot.promised:
        yield Text(f"no objectives are in force: a worker sets them; `{command('status')}` shows it", style="yellow")
    yield _table(TIERS, (_tier(each.tier, each.load, shot.window_s) for each in shot.tiers))
    if not shot.tiers:
        yield Text("No request ended in this period. `slipstream up` printed one to try.", style="yellow")
    yield _table(POOLS, (_pool(each, shot) for each in shot.pools))
    if any(each.per_million_good_tokens_micro is not None for each in shot.pools):
        yield Text("per M: cost of a million good tokens, those of requests within their objective", style="dim")
    if not shot.pools:
        yield Text(
            "There are no pools yet: the first gateway that starts writes those of the settings.", style="yellow"
        )


def _table(head: tuple[str, ...], rows: Iterator[tuple[str, ...]]) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 0), collapse_padding=True)
    for number, name in enumerate(head):
        table.add_column(name, justify="right" if number else "left", no_wrap=True)
    for row in rows:
        table.add_row(*row)
    return table


def _tier(tier: str, load: Load, window_s: int) -> tuple[str, ...]:
    return (
        tier,
        f"{load.requests / window_s:,.1f}",
        _share(load.good, load.counted),
        _ms(load.ttft_p50_ms),
        _ms(load.ttft_p99_ms),
        _ms(load.tpot_p50_ms),
        _ms(load.tpot_p99_ms),
        _ms(load.gap_p99_ms),
        _share(load.failed, load.requests),
        _share(load.shed, load.requests),
        _share(load.limited, load.requests),
        _share(load.cached_tokens, load.prompt_tokens),
        f"{load.completion_tokens / window_s:,.0f}",
    )


def _pool(pool: PoolNow, shot: Snapshot) -> tuple[str, ...]:
    load = pool.load
    figures = (UNKNOWN,) * 6 if load is None else (
        f"{load.requests / shot.window_s:,.1f}",
        _share(load.good, load.counted),
        _ms(load.ttft_p99_ms),
        _ms(load.tpot_p99_ms),
        _share(load.cached_tokens, load.prompt_tokens),
        f"{load.completion_tokens / shot.window_s:,.0f}",
    )  # fmt: skip
    return (
        pool.pool,
        f"{UNKNOWN if pool.usable is None else pool.usable}/{pool.replicas}",
        UNKNOWN if pool.leases is None else f"{pool.leases}/{pool.capacity}",
        UNKNOWN if pool.queued is None else f"{pool.queued:,}",
        *figures,
        *(
            UNKNOWN if micro is None else told(round(micro, -4), shot.currency)
            for micro in (pool.hourly_micro, pool.per_million_good_tokens_micro)
        ),
    )


def _share(part: int, whole: int) -> str:
    """A share, rounded down: 100% means every one."""
    return UNKNOWN if not whole else f"{part * 1_000 // whole / 10:.1f}%"


def _ms(value_ms: float | None) -> str:
    if value_ms is None:
        return UNKNOWN
    return (
        f"{value_ms / 1e3:,.1f} s"
        if value_ms >= 10_000
        else f"{value_ms:,.0f} ms"
        if value_ms >= 10
        else f"{value_ms:.1f} ms"
    )
