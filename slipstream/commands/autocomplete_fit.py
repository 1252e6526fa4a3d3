"""`slipstream usage autocomplete fit`: the layout that completes a tenant's own code best."""

from __future__ import annotations

import asyncio
import contextlib
import math
import os
import sys
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import click
import msgspec

from contracts.base_url import base_url
from contracts.errors import ConfigError
from contracts.generation import Tier
from slipstream.commands.options import Deployment, deployment_options, running_settings
from slipstream.process_end import interruptible

if TYPE_CHECKING:
    from contracts.desired_state import Model
    from contracts.fill_in_the_middle import Healing
    from engines.tokenizer.tokenizer import Tokenizer
    from tools.bench.measure import Listed
    from tools.layouts.layout import Layout
    from tools.layouts.measure import Measured

MAX_AT_ONCE = 100
"""The key's limit of concurrent requests: above the number that the command sends."""


class Served(NamedTuple):
    """A model and its server. url: without `/v1`. healing: as the server lists it."""

    url: str
    key: str
    model: Model
    healing: Healing | None


@click.command()
@click.argument("model")
@click.option(
    "--from",
    "folder",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path(),
    metavar="FOLDER",
    help="Folder of your source code. Default: the working directory. Files that git ignores, links and files over "
    "256 KiB are skipped.",
)
@click.option(
    "--lines",
    type=click.IntRange(2, 100_000),
    default=300,
    show_default=True,
    help="Number of half-typed lines to complete.",
)
@click.option(
    "--layouts",
    metavar="NAMES",
    help="Layouts to compare with the current one, separated by commas: psm, psm-after, spm, spm-after, each also "
    "with +files. Default: all that the model's marks allow.",
)
@click.option(
    "--confidence",
    type=click.FloatRange(0.5, 1, min_open=True, max_open=True),
    default=0.95,
    show_default=True,
    help="Confidence that a new layout is better, which is required to replace the current one.",
)
@click.option("--seed", type=int, default=1, show_default=True, help="Seed of the drawn lines.")
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
@click.option(
    "--tokenizer",
    type=click.Path(path_type=Path),
    metavar="FOLDER",
    help="Folder of the model's tokenizer, for --url. Default: the model's `tokenizer` in this deployment.",
)
@click.option("--organization", default="demo", show_default=True, help="Organization that is billed: id or name.")
@click.option("--project", default="default", show_default=True, help="Project of the organization: id or name.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of the table.")
def fit(
    model: str,
    folder: Path,
    lines: int,
    layouts: str | None,
    confidence: float,
    seed: int,
    deployment: Deployment,
    url: str | None,
    key_file: Path | None,
    tokenizer: Path | None,
    organization: str,
    project: str,
    as_json: bool,
) -> None:
    """Find the prompt layout in which MODEL completes your own code best.

    The command draws half-typed lines of your source files, has MODEL complete each in every layout, and simulates
    typing in some of them. The present layout stays unless a paired test proves another one better, or nearly as good
    at half the work per keystroke; the command then prints the settings. It does not change them. Half-typed words are
    healed as the gateway heals them, and the report gives the number of healed lines. Ctrl-C prints the
    report of the lines so far. Requests are billed. Your code is sent only to the deployment (or to --url).

    \b
    Examples:
      slipstream usage autocomplete fit slipstream-code --from ~/src/shop
      slipstream usage autocomplete fit coder --from . --lines 1000 --layouts psm-after,spm --json
    """
    from engines.tokenizer.tokenizer import Tokenizer
    from slipstream.layout_report import FEW_FILES, Healed, report_of, text_of
    from tools.layouts.cursors import chunks_of, draw, gap_of
    from tools.layouts.layout import Prompts, present_layout, settings_for
    from tools.layouts.measure import Completions, measure
    from tools.layouts.sources import read_sources
    from tools.layouts.verdict import judge

    sources = read_sources(folder)
    edits = draw(sources, lines, seed)
    if len({edit.file for edit in edits}) < 2:
        raise ConfigError(
            f"--from {folder}: {len({edit.file for edit in edits})} source files with lines to complete; a comparison "
            f"needs at least 2, preferably {FEW_FILES}",
            param="--from",
        )
    chunks = chunks_of(sources, seed)
    gaps = [gap_of(edit, chunks) for edit in edits]
    with _served(deployment, url, key_file, tokenizer, (organization, project), model) as served:
        loaded = Tokenizer.load(Path(served.model.tokenizer or ""))
        present = present_layout(served.model, loaded)
        tested = _chosen(layouts, present, loaded)
        server = Completions(served.url, served.key, served.model.name)
        with contextlib.closing(Prompts(served.model, loaded, served.healing)) as prompts:
            found = asyncio.run(
                _until_stopped(lambda stop: measure(server, prompts, tested, edits, gaps, stop, _progress()))
            )
    if not found.edits:
        raise click.Abort
    verdict = judge(present.name, found.answers, [edit.file for edit in found.edits], confidence)
    chosen = next(each for each in tested if each.name == verdict.layout)
    settings = settings_for(chosen, present, served.model)
    report = report_of(model, folder.resolve(), verdict, Healed(served.healing, found.healed), settings)
    click.echo(msgspec.json.encode(report).decode() if as_json else text_of(report))


def _chosen(names: str | None, present: Layout, tokenizer: Tokenizer) -> Sequence[Layout]:
    """The layouts to compare, the present one first."""
    from tools.layouts.layout import layouts_of

    assert tokenizer.fill is not None
    known = {one.name: one for one in layouts_of(tokenizer.fill)}
    requested = [name.strip() for name in names.split(",")] if names else list(known)
    for name in requested:
        if name not in known:
            raise ConfigError(
                f"--layouts: the model has no layout {name!r}; layouts: {', '.join(known)}", param="--layouts"
            )
    return list(dict.fromkeys([present, *(known[name] for name in requested)]))


@contextlib.contextmanager
def _served(
    deployment: Deployment,
    url: str | None,
    key_file: Path | None,
    tokenizer: Path | None,
    payer: tuple[str, str],
    name: str,
) -> Iterator[Served]:
    """The model and a key: those of the server at `url`, or of the deployment here, with a key for this run."""
    from contracts.desired_state import Model

    if url is not None:
        from tools.lsp.key import take_key

        if tokenizer is None:
            raise ConfigError("--tokenizer: --url needs the folder of the model's tokenizer.json", param="--tokenizer")
        base, key = base_url(url), take_key({}, key_file, os.environ)
        found = _listed(base, key, name)
        if not found.max_model_len:
            raise ConfigError(f"{base}: GET /v1/models lists no max_model_len of {name}, its context")
        served = Model(name, Tier.AUTOCOMPLETE, "", found.max_model_len, tokenizer=str(tokenizer))
        yield Served(base, key, served, found.healing)
        return
    from control.fleet.pools import get_pool
    from control.tenants.limits import NewLimits
    from slipstream.administration import administer
    from slipstream.lent_key import LOAD_HOURS, LOAD_RATES, Payer, lent_key, require_key_accepted
    from slipstream.processes import public_url
    from tools.layouts.layout import require_layouts

    base = public_url(running_settings(*deployment))
    limits = NewLimits(**LOAD_RATES, max_concurrency=MAX_AT_ONCE)
    with lent_key(
        deployment, "fit", Payer(*payer), limits, model=name, tiers={Tier.AUTOCOMPLETE}, hours=LOAD_HOURS
    ) as lent:
        require_layouts(lent.model, administer(deployment, lambda call: get_pool(call, lent.model.pool)))
        require_key_accepted(base, "/v1/completions", "this command", lent.secret)
        yield Served(base, lent.secret, lent.model, _listed(base, lent.secret, lent.model.name).healing)


def _listed(url: str, key: str, name: str) -> Listed:
    """The model as the server lists it. Raises ConfigError, which names the served models."""
    from tools.bench.measure import models

    listed = asyncio.run(models(url, key))
    found = next((each for each in listed if each.id == name), None)
    if found is None:
        raise ConfigError(f"{url} serves no model {name!r}; models: {', '.join(each.id for each in listed)}")
    return found


async def _until_stopped(work: Callable[[asyncio.Event], Awaitable[Measured]]) -> Measured:
    """The result of the work until it ends or Ctrl-C stops it."""
    with interruptible() as stop:
        return await work(stop)


def _progress() -> Callable[[str, int, int], None]:
    """A function that prints progress: one line, overwritten, on a terminal, else a line for each tenth."""
    terminal = sys.stderr.isatty()
    started_s: dict[str, float] = {}

    def show(phase: str, done: int, total: int) -> None:
        passed_s = time.monotonic() - started_s.setdefault(phase, time.monotonic())
        if not terminal and done % max(1, total // 10):
            return
        left = f", about {math.ceil(passed_s / done * (total - done) / 60)} min left" if passed_s and done else ""
        line = f"  {phase:<18} {done:,} of {total:,}{left if done < total else ''}"
        end = "\n" if not terminal or done == total else ""
        print(f"\r\x1b[K{line}" if terminal else line, end=end, file=sys.stderr, flush=True)

    return show
