"""`slipstream simulate`: the router's own core against modelled engines, on a trace or on made-up traffic."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click
import msgspec

from contracts.errors import ConfigError

if TYPE_CHECKING:
    from router.simulator.arrival import Arrival
    from router.simulator.config import SimulatorConfig

SAY_EVERY_S = 1.0
PEAK_HOURS = (20.5, 21.5)


@click.command()
@click.option("--trace", type=click.Path(path_type=Path), metavar="FILE", help="Mooncake or Azure, .gz or plain.")
@click.option("--sessions", is_flag=True, help="Made-up conversations with shared system prompts (the default).")
@click.option("--day", type=float, metavar="N", help="A 10-million-user day at 1/N, without a given load.")
@click.option("--hours", nargs=2, type=float, default=PEAK_HOURS, show_default=True, help="Part of the day.")
@click.option("--policy", "policies", multiple=True, help="Repeat: ours, smg, smg_events, dynamo, round_robin, …")
@click.option("--load", "loads", default="1,2,3", show_default=True, help="Requests per second and replica.")
@click.option("--minutes", default=10.0, show_default=True, help="Length of made-up conversations.")
@click.option("--replicas", default=8, show_default=True)
@click.option("--node", default="70b-fp8-8xh100", show_default=True, help="Modelled machine and model.")
@click.option("--seeds", default=1, show_default=True, help="Runs per policy and load; figures are their means.")
@click.option("--spread", default=0.3, show_default=True, help="Replicas' true speeds differ by ± this.")
@click.option("--plot", type=click.Path(path_type=Path), metavar="FILE.svg", help="Draw the curves.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of the table.")
def simulate(
    trace: Path | None,
    sessions: bool,
    day: float | None,
    hours: tuple[float, float],
    policies: Sequence[str],
    loads: str,
    minutes: float,
    replicas: int,
    node: str,
    seeds: int,
    spread: float,
    plot: Path | None,
    as_json: bool,
) -> None:
    """Compare placement policies on modelled engines, minutes of traffic in seconds."""
    from router.simulator.chart import chart
    from router.simulator.competitors import OURS
    from router.simulator.config import SimulatorConfig
    from router.simulator.sweep import sweep
    from router.simulator.table import table

    if sum((trace is not None, sessions, day is not None)) > 1:
        raise ConfigError("give one of --trace, --sessions and --day")
    config = SimulatorConfig(node=node, replicas=replicas, spread=spread)
    load_list = [0.0] if day is not None else _numbers(loads)
    config, workload = _workload(trace, day, hours, minutes, config)
    rows = sweep(config, policies or (OURS, "smg", "dynamo", "least_load"), load_list, seeds, workload, _Speaker().say)
    if as_json:
        click.echo(msgspec.json.encode(rows).decode())
    else:
        click.echo(table(rows))
    if plot is not None:
        plot.write_text(chart(f"{replicas} × {node}", rows), encoding="utf-8")
        click.echo(f"drawn to {plot}", err=True)


def _workload(
    trace: Path | None, day: float | None, hours: tuple[float, float], minutes: float, config: SimulatorConfig
) -> tuple[SimulatorConfig, Callable[[float, int], Sequence[Arrival]]]:
    from router.simulator import day as whole_day
    from router.simulator import sessions as made_up
    from router.simulator.trace import TRACE_BLOCK_TOKENS, read_trace
    from router.simulator.workload import at_rate

    replicas = config.replicas
    block_tokens = TRACE_BLOCK_TOKENS if trace is not None else made_up.SessionsConfig().block_tokens
    config = msgspec.structs.replace(config, limits=msgspec.structs.replace(config.limits, block_tokens=block_tokens))
    if trace is not None:
        recorded = read_trace(trace)
        copies = max(1, replicas // 8)
        return config, lambda load, seed: at_rate(recorded, load, replicas, copies, seed)
    if day is not None:
        begin_s, end_s = hours[0] * 3_600, hours[1] * 3_600
        return config, lambda load, seed: whole_day.day(day, begin_s, end_s, seed)
    return config, lambda load, seed: made_up.sessions(load * replicas, minutes * 60, seed)


def _numbers(text: str) -> list[float]:
    try:
        numbers = [float(part) for part in text.split(",")]
    except ValueError as error:
        raise ConfigError(f"--load {text!r}: give numbers with commas between them, such as 1,2,3") from error
    if min(numbers) <= 0:
        raise ConfigError(f"--load {text!r}: loads must be above 0")
    return numbers


class _Speaker:
    """Says on standard error what runs, when it takes longer than a moment."""

    def __init__(self) -> None:
        self._said_at = time.monotonic()

    def say(self, text: str) -> None:
        now = time.monotonic()
        if now - self._said_at >= SAY_EVERY_S:
            self._said_at = now
            print(f"  {text}", file=sys.stderr, flush=True)
