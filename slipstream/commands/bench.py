"""`slipstream tools bench`: measures a deployment under load, from a client's side."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click
import msgspec

from contracts.base_url import base_url
from contracts.errors import ConfigError
from contracts.printable import printable
from slipstream.commands.finite import Finite
from slipstream.commands.objectives import objective_option, promises_of
from slipstream.commands.options import Deployment, deployment_options, running_settings
from slipstream.process_end import interruptible
from slipstream.table import table

if TYPE_CHECKING:
    from router.config import SloClass
    from tools.bench.load import Load, Span
    from tools.bench.measure import Course, Target
    from tools.bench.summary import Figure, Summary

MAX_AT_ONCE = 10_000
"""The key's limit of concurrent requests: above every load."""
MAX_RATE = 100_000
LONGEST = 1 << 30
"""Longer than any prompt, in tokens."""
MAX_LATE_S = 0.05
HEAD = ("", "avg", "p50", "p90", "p99", "max")
ROWS = (
    ("TTFT, ms", "time_to_first_token"),
    ("TPOT, ms", "inter_token_latency"),
    ("ITL (gaps), ms", "inter_chunk_latency"),
    ("latency, ms", "request_latency"),
    ("prompt tokens", "input_sequence_length"),
    ("output tokens", "output_sequence_length"),
)


@click.command()
@deployment_options
@click.option("--url", help="URL of another OpenAI-compatible server, with or without /v1. Default: this deployment.")
@click.option(
    "--api-key-file",
    "key_file",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="File with the API key for --url. Default: SLIPSTREAM_API_KEY. Without --url, the command creates a key and "
    "revokes it at the end.",
)
@click.option("--organization", default="demo", show_default=True, help="Organization that is billed: id or name.")
@click.option("--project", default="default", show_default=True, help="Project of the organization: id or name.")
@click.option("--model", help="A model or an alias. Default: the first model.")
@click.option(
    "--endpoint",
    type=click.Choice(["chat", "completions"]),
    help="API to use. Default: completions for models of the autocomplete tier, otherwise chat.",
)
@click.option(
    "--streams", type=click.IntRange(1, 10_000), default=4, show_default=True, help="Number of concurrent requests."
)
@click.option(
    "--rate",
    type=Finite(min=0, max=MAX_RATE, min_open=True),
    metavar="REQUESTS",
    help="Requests per second, at random times and without a limit on concurrent requests. Replaces --streams.",
)
@click.option(
    "--trace",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="File of requests (Mooncake, Azure, `usage workload --export`), which are sent at their recorded times. "
    "Replaces --streams and --rate.",
)
@click.option(
    "--prompt-tokens",
    default="512",
    show_default=True,
    metavar="N|N-M",
    help="Length of prompts, including the template.",
)
@click.option("--output-tokens", default="128", show_default=True, metavar="N|N-M", help="Length of responses.")
@click.option(
    "--seconds",
    type=click.FloatRange(min=0, min_open=True),
    help="Length of the measured period.  [default: 30; with --trace: the whole trace]",
)
@click.option(
    "--warm-up-s",
    type=click.FloatRange(min=0),
    default=5.0,
    show_default=True,
    help="Seconds of load before the measured period.",
)
@objective_option
@click.option("--seed", type=int, default=1, show_default=True, help="Seed for random lengths and times.")
@click.option(
    "--plot",
    type=click.Path(path_type=Path, dir_okay=False, writable=True),
    metavar="FILE.svg",
    help="File for a chart of the distributions.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of the table.")
def bench(
    deployment: Deployment,
    url: str | None,
    key_file: Path | None,
    organization: str,
    project: str,
    model: str | None,
    endpoint: str | None,
    streams: int,
    rate: float | None,
    trace: Path | None,
    prompt_tokens: str,
    output_tokens: str,
    seconds: float | None,
    warm_up_s: float,
    objectives: Sequence[str],
    seed: int,
    plot: Path | None,
    as_json: bool,
) -> None:
    """Measure TTFT, TPOT, gaps, goodput and tokens/s under load.

    The command sends requests to this deployment, or to any OpenAI-compatible server. It counts tokens by the server's
    `usage`. Ctrl-C prints the report of the requests so far. Exit code 1: no request succeeded.

    \b
    Examples:
      slipstream tools bench --streams 16 --prompt-tokens 1000-4000 --output-tokens 200
      slipstream tools bench --rate 5 --seconds 60 --objective :700:40 --plot run.svg --json
      slipstream tools bench --url https://models.example.com --model large --trace mine.jsonl
    """
    from tools.bench.load import Load
    from tools.bench.picture import picture
    from tools.bench.summary import summary
    from tools.simulator.outcome import PROMISES
    from tools.simulator.trace import read_trace

    if rate is not None and trace is not None:
        raise ConfigError("give one of --rate and --trace")
    if plot is not None and (plot.suffix != ".svg" or not plot.parent.is_dir()):
        raise ConfigError(f"--plot {plot}: give a file ending in .svg in a folder that exists")
    requested = promises_of(objectives)
    arrivals = read_trace(trace) if trace is not None else []
    if seconds is None:
        seconds = max(arrivals[-1].at_s + 1e-3 - warm_up_s, 1e-3) if arrivals else 30.0
    load = Load(
        streams=streams, rate=rate, trace=arrivals, prompt_tokens=_span("--prompt-tokens", prompt_tokens),
        output_tokens=_span("--output-tokens", output_tokens), seconds=seconds, warm_up_s=warm_up_s, seed=seed,
    )  # fmt: skip
    with _target(deployment, url, key_file, (organization, project), model, endpoint) as target:
        course = asyncio.run(_measured(target, load))
    own = _own_promises(deployment, target) if url is None else ()
    promises = requested or own or PROMISES
    result = summary(course.answers, warm_up_s, promises)
    click.echo(msgspec.json.encode(result).decode() if as_json else _text(target, course, result, promises))
    if course.late_s > MAX_LATE_S:
        _say(f"requests were sent up to {course.late_s * 1e3:,.0f} ms late: this machine is too slow for this rate")
    if course.lengthened:
        least = course.least_prompt_tokens
        _say(
            f"{course.lengthened:,} of {len(course.answers):,} prompts were sent with about {least:,} tokens, the "
            f"smallest possible length: the server adds its model's template to each"
        )
    if plot is not None:
        plot.write_text(picture(f"{target.model} at {target.url}", course.answers, warm_up_s), encoding="utf-8")
        _say(f"drawn to {plot}")
    if not result.request_count.avg:
        sys.exit(1)


@contextlib.contextmanager
def _target(
    deployment: Deployment,
    url: str | None,
    key_file: Path | None,
    payer: tuple[str, str],
    model: str | None,
    endpoint: str | None,
) -> Iterator[Target]:
    """The server under load; for the deployment here, with a key for this run."""
    from tools.bench.measure import PATHS, Target, models
    from tools.lsp.key import take_key

    if url is not None:
        base = base_url(url)
        key = take_key({}, key_file, os.environ)
        listed = asyncio.run(models(base, key))
        if not listed:
            raise ConfigError(f"{base} serves no model to this key")
        found = next((each for each in listed if each.id == model), listed[0])
        yield Target(base, key, model or found.id, endpoint or found.endpoint)
        return
    from contracts.generation import Tier
    from control.tenants.limits import NewLimits
    from slipstream.lent_key import LOAD_HOURS, LOAD_RATES, Payer, lent_key, require_key_accepted
    from slipstream.processes import public_url

    base = public_url(running_settings(*deployment))
    limits = NewLimits(**LOAD_RATES, max_concurrency=MAX_AT_ONCE)
    with lent_key(deployment, "bench", Payer(*payer), limits, model=model, tiers=set(Tier), hours=LOAD_HOURS) as lent:
        chosen = endpoint or ("completions" if lent.model.tier is Tier.AUTOCOMPLETE else "chat")
        require_key_accepted(base, f"/v1{PATHS[chosen]}", "this command", lent.secret)
        yield Target(base, lent.secret, lent.model.name, chosen)


async def _measured(target: Target, load: Load) -> Course:
    from tools.bench.measure import measure

    with interruptible(lambda: _say("stopping; the report covers the requests so far")) as stop:
        return await measure(target, load, stop, lambda course, now_s: _progress(load, course, now_s))


def _progress(load: Load, course: Course, now_s: float) -> None:
    """Print one line, overwritten, on a terminal, else a line every ten seconds."""
    from tools.bench.summary import tokens_per_s

    terminal = sys.stderr.isatty()
    if not terminal and int(now_s) % 10:
        return
    failed = sum(bool(answer.fault) for answer in course.answers)
    ended = len(course.answers) - course.running - failed
    phase = "warm-up" if now_s < load.warm_up_s else "measuring" if now_s < load.whole_s else "last responses"
    line = (
        f"{phase:<14} {now_s:4.0f} of {load.whole_s:g} s  {ended:,} done  {course.running} running  {failed} failed  "
        f"{tokens_per_s(course.answers, now_s):,.0f} tokens/s"
    )
    print(f"\r\x1b[K  {line}" if terminal else f"  {line}", end="" if terminal else "\n", file=sys.stderr, flush=True)


def _say(text: str) -> None:
    print("\r\x1b[K" if sys.stderr.isatty() else "", f"  {text}", sep="", file=sys.stderr, flush=True)


def _own_promises(deployment: Deployment, target: Target) -> tuple[SloClass, ...]:
    """The deployment's objectives for the model's tier."""
    from contracts.generation import Tier

    tier = Tier.AUTOCOMPLETE if target.endpoint == "completions" else Tier.CHAT
    slos = running_settings(*deployment).router.slos
    return tuple(slo for slo in slos if slo.tier is tier)


def _promised(promises: Sequence[SloClass]) -> str:
    """`first token 5,000 ms and 200 ms a token up to 2,048 tokens, …`"""
    return ", ".join(
        f"first token {each.ttft_s * 1e3:,.0f} ms"
        + (f" and {each.tpot_s * 1e3:,.0f} ms a token" if each.tpot_s else "")
        + (f" up to {each.prompt_tokens:,} tokens" if each.prompt_tokens < LONGEST else "")
        for each in promises
    )


def _text(target: Target, course: Course, result: Summary, promises: Sequence[SloClass]) -> str:
    rows = [(name, *_cells(getattr(result, field))) for name, field in ROWS]
    errors = ", ".join(f"{number:,} × {printable(fault)}" for fault, number in result.errors.items()) or "none"
    ended, good = result.request_count.avg, result.good_request_count.avg
    prompts = result.total_isl.avg
    cached = f" ({result.total_cached_tokens.avg / prompts:.0%} cached)" if prompts else ""
    lines = [
        f"{printable(target.model)} at {target.url}, {target.endpoint}, {result.benchmark_duration.avg:.1f} s",
        "",
        *table(HEAD, rows),
        "",
        f"output      {result.output_token_throughput.avg:,.1f} tokens/s, {result.total_output_tokens.avg:,.0f} tokens",
        f"prompts     {prompts:,.0f} tokens{cached}",
        f"requests    {result.request_throughput.avg:,.2f}/s, {ended:,.0f} ended",
        f"goodput     {result.goodput.avg:,.2f} requests/s: {good:,.0f} of {ended:,.0f} met their objectives",
        f"objectives  {_promised(promises)}",
        f"errors      {errors}",
    ]
    if result.unfinished_request_count.avg:
        lines.append(f"unfinished  {result.unfinished_request_count.avg:,.0f}, excluded from the figures")
    if not course.ignore_eos:
        lines.append("the server does not support ignore_eos: responses may be shorter than --output-tokens")
    return "\n".join(lines)


def _cells(figure: Figure | None) -> list[str]:
    if figure is None:
        return ["-"] * (len(HEAD) - 1)
    return [f"{value or 0.0:,.1f}" for value in (figure.avg, figure.p50, figure.p90, figure.p99, figure.max)]


def _span(option: str, text: str) -> Span:
    least, _, most = text.partition("-")
    try:
        span = int(least), int(most or least)
    except ValueError:
        span = (0, 0)
    if not 1 <= span[0] <= span[1]:
        raise ConfigError(f"{option} {text!r}: write a number of at least 1, or a range such as 100-400")
    return span
