"""`python -m tools.training code`: trains the code model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from tools.training import export
from tools.training.code_files import load
from tools.training.code_source import CodeSource
from tools.training.options import run_options, schedule_and_settings
from tools.training.trainer import Trainer


def source(corpus: Path, tokenizer: Path, seed: int, stdlib_weight: float = 3.0, fim_share: float = 0.5) -> CodeSource:
    """Windows of a corpus's training part. stdlib_weight: of the standard library, relative to packages."""
    train = load(corpus).part("train")
    weights = [stdlib_weight if name.startswith("stdlib") else 1.0 for name in train]
    return CodeSource(list(train.values()), weights, tokenizer, seed, fim_share)


@click.command()
@click.option("--corpus", type=click.Path(path_type=Path), required=True, help="Folder made by the corpus command.")
@click.option("--init-from", type=click.Path(path_type=Path), default="models/slipstream-code", show_default=True)
@click.option("--context", default=8192, show_default=True, help="max_position_embeddings of the result.")
@click.option("--rope-theta", type=float, help="Default: that of the weights begun from.")
@click.option("--fim-share", default=0.5, show_default=True, help="Of the windows, those with gaps to fill.")
@click.option("--stdlib-weight", default=3.0, show_default=True, help="Of the standard library, against packages.")
@run_options
def command(
    corpus: Path,
    init_from: Path,
    context: int,
    rope_theta: float | None,
    fim_share: float,
    stdlib_weight: float,
    **options: Any,
) -> None:
    """Train on code: half plain, half gaps to fill. Stop it with SIGTERM, start it again to go on."""
    schedule, settings = schedule_and_settings(options)
    changes = {} if rope_theta is None else {"rope_theta": rope_theta}
    model = export.load(init_from, max_position_embeddings=context, **changes)
    windows = source(corpus, init_from, options["seed"], stdlib_weight, fim_share)
    Trainer(model, windows, schedule, settings, options["run"], say=click.echo).run()
