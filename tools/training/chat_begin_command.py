"""`python -m tools.training chat_begin`: writes a chat model's initial weights, with the copying circuit laid out."""

from __future__ import annotations

from pathlib import Path

import click
import torch

from tools.training import export
from tools.training.chat_source import BEGIN, END, POSITIONS, ChatCoder
from tools.training.copying_circuit import lay_out
from tools.training.model import Llama, Shape


@click.command()
@click.option("--tokenizer", type=click.Path(path_type=Path), required=True, help="Folder with its files.")
@click.option("--out", type=click.Path(path_type=Path), required=True, help="Folder to write.")
@click.option("--hidden", default=256, show_default=True)
@click.option("--layers", default=4, show_default=True)
@click.option("--heads", default=4, show_default=True, help="Of 64 each.")
@click.option("--inner", default=704, show_default=True, help="Width of the MLPs.")
@click.option("--seed", default=1, show_default=True)
def command(tokenizer: Path, out: Path, hidden: int, layers: int, heads: int, inner: int, seed: int) -> None:
    """Write a model to train on, as --init-from of the chat command."""
    coder = ChatCoder(tokenizer)
    shape = Shape(
        vocab_size=coder.vocabulary,
        hidden_size=hidden,
        intermediate_size=inner,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=heads,
        head_dim=64,
        max_position_embeddings=POSITIONS,
        rope_theta=1e6,
    )
    model = Llama(shape)
    generator = torch.Generator().manual_seed(seed)
    model.initialise(generator)
    lay_out(model, generator, coder.twins(), [[coder.ids(str(digit))[0]] for digit in range(10)])
    export.save(model, out, tokenizer, [END, BEGIN])
    click.echo(f"{out}: {sum(weight.numel() for weight in model.parameters()):,} parameters")
