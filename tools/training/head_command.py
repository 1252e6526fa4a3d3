"""`python -m tools.training head`: trains a draft head for a finished model and writes it next to the model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
import torch

from contracts.errors import ConfigError
from engines.embedded.models.config import ModelConfig
from engines.tokenizer.tokenizer import Tokenizer
from evals.slices.registry import SLICES
from speculative.eagle import checkpoint
from tools.training import code_command, export
from tools.training.chat_source import ChatCoder, ChatSource
from tools.training.head_trainer import HeadSettings, HeadTrainer, Target, begin
from tools.training.options import run_options, schedule_and_settings
from tools.training.served_target import ServedTarget
from tools.training.text_source import TextSource
from tools.training.windows import WindowSource

DTYPES = {"bfloat16": torch.bfloat16, "float16": torch.float16, "float32": torch.float32}


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
@click.option(
    "--dtype",
    type=click.Choice(["auto", *DTYPES]),
    default="auto",
    show_default=True,
    help="The head is written in; auto: what the model's config.json says, which engines ask of a head.",
)
@run_options
def command(
    model: Path,
    corpus: Path | None,
    text: Path | None,
    text_tokens: int,
    draft_vocabulary: int,
    from_head: Path | None,
    out: Path | None,
    dtype: str,
    **options: Any,
) -> None:
    """Train a draft head: with --text for any model that the engine serves; for those that are made here with --corpus
    on code, else on chats. A step takes --batch-tokens."""
    schedule, settings = schedule_and_settings(options)
    if text is not None and corpus is not None:
        raise click.UsageError("give --text or --corpus")
    device = torch.device(settings.device)
    written = numbers_of(model) if dtype == "auto" else DTYPES[dtype]
    target: Target = _served(model, device) if text is not None else _own(model, device)
    windows: WindowSource
    if text is not None:
        windows = TextSource(text, Tokenizer.load(model), options["seed"] + 1, text_tokens)
    elif corpus is not None:
        windows = code_command.source(corpus, model, options["seed"] + 1)
    else:
        # an equal share of every slice, training side only
        windows = ChatSource(ChatCoder(model), dict.fromkeys(SLICES, 1.0), options["seed"] + 1)
    length = min(schedule.lengths)
    head_settings = HeadSettings(
        windows=max(1, settings.batch_tokens // length),
        muon_rate=settings.muon_rate,
        adam_rate=settings.adam_rate,
    )
    head = checkpoint.load(from_head) if from_head else begin(target, windows, draft_vocabulary, length)
    trainer = HeadTrainer(head, target, windows, schedule, head_settings, options["run"], say=click.echo)
    trainer.run()
    folder = out or model / "draft"
    checkpoint.save(trainer.head, folder, written)
    click.echo(f"{folder}: {(folder / 'model.safetensors').stat().st_size / 1e6:.1f} MB")


def numbers_of(model: Path) -> torch.dtype:
    """The number format of a head for this model: an engine computes both in one format and refuses a head in another.
    Raises ConfigError for a model in a format that heads cannot have."""
    dtype = ModelConfig.read(model).dtype
    if dtype not in DTYPES:
        raise ConfigError(
            f"{model}: config.json says torch_dtype {dtype}; heads are written in {', '.join(DTYPES)}: choose one "
            "with --dtype, that which the engine is started with",
            param="dtype",
        )
    return DTYPES[dtype]


def _own(model: Path, device: torch.device) -> Target:
    return export.load(model).eval().requires_grad_(False).to(device)


def _served(model: Path, device: torch.device) -> ServedTarget:
    target = ServedTarget(model, device)
    tokens = Tokenizer.load(model).vocabulary_size
    if tokens > target.shape.vocab_size:
        raise ConfigError(
            f"{model}: tokenizer.json has {tokens} tokens, config.json says vocab_size {target.shape.vocab_size}; they "
            "do not belong together"
        )
    return target
