"""Held-out accuracy by slice of the model at a URL: `python -m evals.table URL --model NAME`.

It prints the table of docs/concepts/models.md and, as its last line, the same as JSON. `slipstream engine --model
models/slipstream-chat --port 8300` starts such an endpoint; edits of code need a gateway. `--reserved` uses items on
which no choice was based.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from pathlib import Path

import aiohttp
import click

from contracts.errors import ConfigError
from contracts.generation import Tier
from evals.endpoint import Endpoint, answer_all
from evals.sandbox.isolation import Isolation
from evals.sandbox.sandbox import Sandbox
from evals.score import Score, table
from evals.slices.catalogue import Catalogue
from evals.slices.item import Source
from evals.slices.split import RESERVED_FROM_SEED
from evals.slices.tokens import FolderTokenizer

LONG = frozenset({"retrieval-2000", "retrieval-4000"})
_MAX_LONG = 100


async def measure(
    endpoint: Endpoint, slices: Sequence[Source], items: int, wrong: Path | None = None, first_seed: int = 0
) -> list[Score]:
    """Score `items` held-out items of each slice from a seed on; of a file at most all, from its beginning.

    wrong: a file for the questions answered wrongly.
    """
    scores = []
    for one in slices:
        name = one.name
        count = min(items, _MAX_LONG) if name in LONG else items
        first, count = (first_seed, count) if one.size is None else (0, min(count, one.size))
        drawn = [one.item(seed) for seed in range(first, first + count)]
        answers = await answer_all(endpoint, drawn)
        right = [item.score(answer) for item, answer in zip(drawn, answers, strict=True)]
        scores.append(Score(name, one.about, sum(right), count, one.goal))
        click.echo(f"{name}: {scores[-1].share:.3f} of {count}", err=True)
        if wrong is not None:
            with wrong.open("a") as file:
                for item, answer, score in zip(drawn, answers, right, strict=True):
                    if score < 1:
                        question = {"messages": item.messages} if item.gap is None else {"gap": item.shown}
                        shown = {"slice": name, **question, "want": item.reference, "got": answer}
                        file.write(json.dumps(shown, ensure_ascii=False) + "\n")
    return scores


@click.command()
@click.argument("url")
@click.option("--model", default="slipstream-chat", show_default=True)
@click.option("--key", default="none", help="API key.")
@click.option("--items", default=200, show_default=True, help="Of each slice; at most 100 of the longest two.")
@click.option("--at-once", default=8, show_default=True, help="Requests in flight.")
@click.option("--slices", default="", help="With commas; all conversations if not given.")
@click.option("--wrong", type=click.Path(path_type=Path), help="File for questions answered wrongly, one JSON a line.")
@click.option("--reserved", is_flag=True, help="Items for final figures, whose wrong answers are not to be read.")
@click.option("--folder", type=click.Path(path_type=Path), help="Files of questions; docs/guides/add-a-slice.md.")
@click.option("--tokenizer", type=click.Path(path_type=Path), help="A model's folder, for long texts (RULER).")
@click.option("--length", "lengths", type=int, multiple=True, help="Of long texts, in tokens; may be given again.")
@click.option(
    "--code-isolation",
    type=click.Choice(list(Isolation)),
    default=Isolation.NAMESPACES,
    show_default=True,
    help="How code of the model is kept from this machine.",
)
def main(
    url: str,
    model: str,
    key: str,
    items: int,
    at_once: int,
    slices: str,
    wrong: Path | None,
    reserved: bool,
    folder: Path | None,
    tokenizer: Path | None,
    lengths: tuple[int, ...],
    code_isolation: Isolation,
) -> None:
    """Held-out accuracy by slice of the model behind URL (with /v1)."""
    if reserved and wrong is not None:
        raise click.UsageError("--wrong with --reserved: wrong answers that are read are no reserve any more")
    if bool(tokenizer) != bool(lengths):
        raise click.UsageError("--tokenizer and --length go together: long texts are so many tokens of that tokenizer")
    try:
        counter = FolderTokenizer(tokenizer) if tokenizer else None
        catalogue = Catalogue(folder, Sandbox(Isolation(code_isolation)), counter, lengths)
        chosen = [
            catalogue.to_score(name) for name in (slices.split(",") if slices else catalogue.names_for(Tier.CHAT))
        ]
    except KeyError as error:
        raise click.ClickException(error.args[0]) from error
    except ConfigError as error:
        raise click.ClickException(str(error)) from error
    for name, reasons in catalogue.left_out().items():
        click.echo(f"{name}: left out {', '.join(reasons)}", err=True)
    endpoint = Endpoint(url.rstrip("/"), key, model, at_once)
    try:
        scores = asyncio.run(measure(endpoint, chosen, items, wrong, RESERVED_FROM_SEED if reserved else 0))
    except aiohttp.ClientError as error:
        raise click.ClickException(str(error)) from error
    click.echo(table(scores))
    click.echo(json.dumps({score.slice: [score.right, score.items] for score in scores}))


if __name__ == "__main__":
    main()
