"""`python -m tools.training tokenizer`: learns a code model's byte-level BPE vocabulary. `chat_vocabulary.py` learns
the chat model's."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import click
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

from tools.training.code_files import load

SPECIAL_TOKENS = ["<|endoftext|>", "<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>", "<|pad|>"]
SPLIT = r"\n[ \t]*| ?[A-Za-z_]+| ?\d| ?[^\sA-Za-z_\d]+|\s+"
"""Units that no merge crosses: a newline with its indentation, a word, one digit, a run of punctuation."""


def learn(texts: Iterable[str], vocabulary: int) -> Tokenizer:
    """A tokenizer of `vocabulary` tokens, special ones first. It encodes any text, byte by byte if necessary."""
    tokenizer = Tokenizer(models.BPE())
    split = pre_tokenizers.Split(Regex(SPLIT), "isolated")
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [split, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary,
        special_tokens=SPECIAL_TOKENS,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    return tokenizer


@click.command()
@click.option("--corpus", type=click.Path(path_type=Path), required=True, help="Folder made by the corpus command.")
@click.option("--vocabulary", default=4096, show_default=True, help="Tokens, special ones included.")
@click.option("--out", type=click.Path(path_type=Path), required=True, help="tokenizer.json to write.")
def command(corpus: Path, vocabulary: int, out: Path) -> None:
    """Learn a vocabulary from a corpus's training part.

    The shipped models keep the tokenizers they were begun with: weights belong to a vocabulary.
    """
    files = load(corpus)
    tokenizer = learn(files.part("train").values(), vocabulary)
    out.parent.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(out))
    held = "".join(files.part("held").values())
    per_token = len(held.encode()) / max(1, len(tokenizer.encode(held).ids))
    click.echo(f"{out}: {tokenizer.get_vocab_size()} tokens, {per_token:.2f} bytes a token on the held-out part")
