"""`slipstream tools simulate`: runs the router's own core against modelled engines, on a trace or synthetic traffic."""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click
import msgspec

from contracts.errors import ConfigError
from slipstream.commands.objectives import objective_option, promises_of

if TYPE_CHECKING:
    from tools.simulator.arrival import Arrival
    from tools.simulator.config import SimulatorConfig

COLUMNS = 100
PEAK_HOURS = (20.5, 21.5)
MAX_LOAD = 10_000


@click.command()
@click.option(
    "--trace",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Trace in the format of Mooncake or Azure; plain, .gz or .xz.",
)
@click.option(
    "--recorded",
    is_flag=True,
    help="Send the trace's requests at their recorded times, for a trace from `slipstream usage workload --export`. "
    "Excludes --load.",
)
@click.option("--sessions", is_flag=True, help="Synthetic conversations with shared system prompts (the default).")
@click.option(
    "--day",
    type=click.FloatRange(min=0, min_open=True),
    metavar="N",
    help="Simulate a day of a product with 10 million users, scaled by 1/N: about 5,000/N requests/s at the peak, at "
    "21:00.",
)
@click.option(
    "--hours",
    nargs=2,
    type=click.FloatRange(0, 24),
    default=PEAK_HOURS,
    show_default=True,
    metavar="FROM TO",
    help="Hours of the day to simulate; 0 24 is the whole day.",
)
@click.option(
    "--policy",
    "policies",
    multiple=True,
    metavar="NAME",
    help="Policy. Repeat to compare several: ours, smg, smg_events, dynamo, round_robin, least_load, consistent_hash, "
    "or core:POLICY for another policy of our router. smg is the rule of Shepherd Model Gateway, dynamo that of "
    "NVIDIA Dynamo.  [default: ours, smg, dynamo, least_load]",
)
@click.option(
    "--load", "loads", default="4,8,10", show_default=True, metavar="RATES", help="Requests per second and replica."
)
@click.option(
    "--minutes",
    type=click.FloatRange(min=0, min_open=True),
    default=5.0,
    show_default=True,
    help="Length of synthetic conversations.",
)
@click.option(
    "--replicas", type=click.IntRange(1, 10_000), default=8, show_default=True, help="Number of engines in the pool."
)
@click.option("--node", default="70b-fp8-8xh100", show_default=True, help="Modelled machine and model.")
@click.option(
    "--seeds",
    type=click.IntRange(min=1),
    default=1,
    show_default=True,
    help="Runs per policy and load. The figures are means over the runs.",
)
@click.option(
    "--spread",
    type=click.FloatRange(0, 1, max_open=True),
    default=0.3,
    show_default=True,
    help="Fraction by which the replicas' true speeds differ, up and down.",
)
@objective_option
@click.option(
    "--plot",
    type=click.Path(path_type=Path, dir_okay=False, writable=True),
    metavar="FILE.svg",
    help="File for a chart of the curves, over load or with --day over the hours.",
)
@click.option(
    "--wide", is_flag=True, help="Show all columns: medians, refusals, intervals, and met objectives by length."
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of the table.")
def simulate(
    trace: Path | None,
    recorded: bool,
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
    objectives: Sequence[str],
    plot: Path | None,
    wide: bool,
    as_json: bool,
) -> None:
    """Compare placement policies on modelled engines.

    \b
    slipstream tools simulate                                   conversations at three loads
    slipstream tools simulate --trace FILE --load 1,2,3 --seeds 3 --plot curves.svg
    slipstream tools simulate --trace mine.jsonl --recorded --replicas 10 --policy ours
    slipstream tools simulate --day 100 --replicas 8 --hours 17 23 --plot evening.svg
    """
    from tools.simulator.chart import chart, day_chart
    from tools.simulator.competitors import OURS
    from tools.simulator.config import SimulatorConfig
    from tools.simulator.sweep import sweep
    from tools.simulator.table import LEGEND, WIDE_LEGEND, conclusion, table

    if sum((trace is not None, sessions, day is not None)) > 1:
        raise ConfigError("give one of --trace, --sessions and --day")
    if recorded and trace is None:
        raise ConfigError("--recorded replays a trace; name it with --trace")
    if hours[0] >= hours[1]:
        raise ConfigError(f"--hours {hours[0]:g} {hours[1]:g}: the first must come before the second")
    if plot is not None and (plot.suffix != ".svg" or not plot.parent.is_dir()):
        raise ConfigError(f"--plot {plot}: give a file ending in .svg in a folder that exists")
    config = SimulatorConfig(node=node, replicas=replicas, spread=spread)
    if objectives:
        config = msgspec.structs.replace(config, promises=promises_of(objectives))
    load_list = [0.0] if recorded or day is not None else _numbers(loads)
    config, workload = _workload(trace, recorded, day, hours, minutes, config)
    rows = sweep(config, policies or (OURS, "smg", "dynamo", "least_load"), load_list, seeds, workload, _say)
    if as_json:
        click.echo(msgspec.json.encode(rows).decode())
    else:
        click.echo("\n".join(textwrap.wrap(conclusion(rows), COLUMNS, break_on_hyphens=False)) + "\n")
        click.echo(table(rows, wide))
        click.echo(f"{LEGEND}\n{WIDE_LEGEND}" if wide else LEGEND, err=True)
        click.echo(
            f"the fleet of {replicas} replicas: {replicas} times the load and the goodput of the table", err=True
        )
    if plot is not None:
        title = f"{replicas} × {node}" + (f", a day at 1/{day:g}" if day is not None else "")
        picture = chart(title, rows) if day is None else day_chart(title, rows, hours[0])
        plot.write_text(picture, encoding="utf-8")
        click.echo(f"drawn to {plot}", err=True)


def _workload(
    trace: Path | None,
    recorded: bool,
    day: float | None,
    hours: tuple[float, float],
    minutes: float,
    config: SimulatorConfig,
) -> tuple[SimulatorConfig, Callable[[float, int], Sequence[Arrival]]]:
    from tools.simulator import day as whole_day
    from tools.simulator import sessions as made_up
    from tools.simulator.trace import TRACE_BLOCK_TOKENS, read_trace
    from tools.simulator.workload import at_rate

    replicas = config.replicas
    block_tokens = TRACE_BLOCK_TOKENS if trace is not None else made_up.SessionsConfig().block_tokens
    config = msgspec.structs.replace(config, limits=msgspec.structs.replace(config.limits, block_tokens=block_tokens))
    if trace is not None:
        arrivals = read_trace(trace)
        if recorded:
            return config, lambda load, seed: arrivals
        copies = max(1, replicas // 8)
        return config, lambda load, seed: at_rate(arrivals, load, replicas, copies, seed)
    if day is not None:
        begin_s, end_s = hours[0] * 3_600, hours[1] * 3_600
        return config, lambda load, seed: whole_day.day(day, begin_s, end_s, seed)
    return config, lambda load, seed: made_up.sessions(load * replicas, minutes * 60, seed)


def _numbers(text: str) -> list[float]:
    try:
        numbers = [float(part) for part in text.split(",")]
    except ValueError as error:
        raise ConfigError(f"--load {text!r}: give numbers with commas between them, such as 1,2,3") from error
    if not all(0 < number <= MAX_LOAD for number in numbers):
        raise ConfigError(f"--load {text!r}: give loads above 0, and at most {MAX_LOAD:,}")
    return numbers


def _say(text: str) -> None:
    """Print progress to stderr, separately from the table."""
    print(f"  {text}", file=sys.stderr, flush=True)
