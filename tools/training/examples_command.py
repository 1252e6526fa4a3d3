"""`python -m tools.training examples`: ten completions that a newcomer would try, as Markdown, unedited."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import click
import torch

from engines.tokenizer.tokenizer import Tokenizer
from tools.training.greedy import generate


class Example(NamedTuple):
    """The text before the cursor and after it."""

    before: str
    after: str


EXAMPLES = (
    Example("def add(a, b):\n    return ", "\n"),
    Example("numbers = [3, 1, 2]\nfor i in range(", "\n    print(numbers[i])\n"),
    Example("def main():\n    print('hello')\n\n\nif __name__ == ", "\n    main()\n"),
    Example("def read(path):\n    with open(path", "\n        return f.read()\n"),
    Example("class Stack:\n    def __init__(self):\n        self.items = ", "\n\n    def push(self, item):\n"),
    Example("class Stack:\n    def push(self, item):\n        self.items.", "\n\n    def pop(self):\n"),
    Example("def parse(text):\n    try:\n        return int(text)\n    except ", "\n        return None\n"),
    Example("import os\nimport sys\nimport ", "\n\nparser = argparse.ArgumentParser()\n"),
    Example("def is_even(number):\n    return number ", "\n"),
    Example("def total(prices):\n    result = 0\n    for price in ", "\n        result += price\n    return result\n"),
)


def complete(model: Path) -> list[str]:
    """The model's greedy line for each example, with the prompt that the gateway sends if no word is healed:
    `Tokenizer.fill_ids`."""
    tokenizer = Tokenizer.load(model)
    prompts = [tokenizer.fill_ids(before, after) for before, after in EXAMPLES]
    return generate(model, prompts, max_tokens=32, stop=("\n",)).texts


@click.command()
@click.option("--model", type=click.Path(path_type=Path, exists=True), default="models/slipstream-code")
def command(model: Path) -> None:
    """Show ten completions; ⟦what the model wrote⟧ stands at the cursor."""
    torch.set_num_threads(1)
    for (before, after), text in zip(EXAMPLES, complete(model), strict=True):
        click.echo(f"```python\n{before}⟦{text}⟧{after.rstrip()}\n```\n")
