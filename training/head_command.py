"""`python -m training head`: trains a draft head for a finished model and writes it beside the model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from contracts.errors import ConfigError
from engines.tokenizer.tokenizer import Tokenizer
from evals.slices.registry import SLICES
from speculative.eagle import checkpoint
from training import code_command, export
from training.chat_source import ChatCoder, ChatSource
from training.head_trainer import HeadSettings, HeadTrainer, Target, begin
from training.options import run_options, schedule_and_settings
from training.served_target import ServedTarget
from training.text_source import TextSource
from training.windows import WindowSource


@click.command()
@click.option("--model", type=click.Path(path_type=Path, exists=True), required=True, help="The finished target.")
@click.option("--corpus", type=click.Path(path_type=Path), help="Of a code model: folder made by the corpus command.")
@click.option(
    "--text",
    type=click.Path(path_type=Path, exists=True),
    help="Of any Llama, Mistral, Qwen2 or Qwen3 folder: plain text, .jsonl with `text` or `messages`, or a folder of "
    "Python files. Best what the model itself answered.",
)
@click.option("--text-tokens", default=50_000_000, show_default=True, help="Of --text at most.")
@click.option("--draft-vocabulary", default=2048, show_default=True, help="Tokens that the head can guess.")
@click.option(
    "--from-head",
    type=click.Path(path_type=Path, exists=True),
    help="Go on from this head of an earlier state of the same model, with its vocabulary.",
)
@click.option("--out", type=click.Path(path_type=Path), help="Default: the folder `draft` in the model's.")
@run_options
def command(
    model: Path,
    corpus: Path | None,
    text: Path | None,
    text_tokens: int,
    draft_vocabulary: int,
    from_head: Path | None,
    out: Path | None,
    **given: Any,
) -> None:
    """Train a draft head: with --text for any model that the engine serves; for those that are made here with --corpus
    on code, else on chats. A step takes --batch-tokens."""
    schedule, settings = schedule_and_settings(given)
    if text is not None and corpus is not None:
        raise click.UsageError("give --text or --corpus")
    target: Target = _served(model) if text is not None else export.load(model).eval().requires_grad_(False)
    windows: WindowSource
    if text is not None:
        windows = TextSource(text, Tokenizer.load(model), given["seed"] + 1, text_tokens)
    elif corpus is not None:
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


def _served(model: Path) -> ServedTarget:
    target = ServedTarget(model)
    tokens = Tokenizer.load(model).vocabulary_size
    if tokens > target.shape.vocab_size:
        raise ConfigError(
            f"{model}: tokenizer.json has {tokens} tokens, config.json says vocab_size {target.shape.vocab_size}; they "
            "do not belong together"
        )
    return target
