"""`python -m training head`: trains a draft head for the code or the chat model and writes it beside the model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from evals.slices.registry import SLICES
from speculative.eagle import checkpoint
from training import code_command, export
from training.chat_source import ChatCoder, ChatSource
from training.head_trainer import HeadSettings, HeadTrainer, begin
from training.options import run_options, schedule_and_settings
from training.windows import WindowSource


@click.command()
@click.option("--model", type=click.Path(path_type=Path, exists=True), required=True, help="The finished target.")
@click.option("--corpus", type=click.Path(path_type=Path), help="Of a code model: folder made by the corpus command.")
@click.option("--draft-vocabulary", default=2048, show_default=True, help="Tokens that the head can guess.")
@click.option(
    "--from-head",
    type=click.Path(path_type=Path, exists=True),
    help="Go on from this head of an earlier state of the same model, with its vocabulary.",
)
@click.option("--out", type=click.Path(path_type=Path), help="Default: the folder `draft` in the model's.")
@run_options
def command(
    model: Path, corpus: Path | None, draft_vocabulary: int, from_head: Path | None, out: Path | None, **given: Any
) -> None:
    """Train a draft head. With --corpus on code, without it on chats. A step takes --batch-tokens."""
    schedule, settings = schedule_and_settings(given)
    target = export.load(model).eval().requires_grad_(False)
    windows: WindowSource
    if corpus is not None:
        windows = code_command.source(corpus, model, given["seed"] + 1)
    else:
        # every slice alike, training side only
        windows = ChatSource(ChatCoder(model), dict.fromkeys(SLICES, 1.0), given["seed"] + 1)
    length = min(schedule.lengths)
    head_settings = HeadSettings(
        windows=max(1, settings.batch_tokens // length),
        muon_rate=settings.muon_rate,
        adam_rate=settings.adam_rate,
    )
    head = checkpoint.load(from_head) if from_head else begin(target, windows, draft_vocabulary, length)
    trainer = HeadTrainer(head, target, windows, schedule, head_settings, given["run"], say=click.echo)
    trainer.run()
    folder = out or model / "draft"
    checkpoint.save(head, folder)
    click.echo(f"{folder}: {(folder / 'model.safetensors').stat().st_size / 1e6:.1f} MB")
