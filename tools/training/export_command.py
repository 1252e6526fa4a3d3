"""`python -m tools.training export`: writes a run's checkpoint as a Hugging Face folder."""

from __future__ import annotations

from pathlib import Path

import click
import msgspec

from tools.training import export
from tools.training.trainer import CHECKPOINT


@click.command()
@click.option("--run", type=click.Path(path_type=Path, exists=True), required=True, help="Folder of a run.")
@click.option(
    "--like", type=click.Path(path_type=Path, exists=True), required=True, help="Folder whose tokenizer is it."
)
@click.option("--out", type=click.Path(path_type=Path), required=True)
def command(run: Path, like: Path, out: Path) -> None:
    """Write config, weights in bfloat16, tokenizer and generation settings."""
    model, tokens = export.from_checkpoint(run / CHECKPOINT)
    generation = msgspec.json.decode((like / "generation_config.json").read_bytes())
    export.save(model, out, like, generation["eos_token_id"])
    size = (out / "model.safetensors").stat().st_size
    click.echo(f"{out}: {size / 1e6:.1f} MB, {tokens / 1e6:.2f}M tokens in this run")
