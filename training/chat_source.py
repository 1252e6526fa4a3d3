"""Windows of program-generated conversations: the slices of evals/, training side only, whole conversations packed.

Only what the assistant says counts towards the loss, its end token included.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path

from tokenizers import Tokenizer

from evals.slices.item import Item, Message, Slice, assistant, system
from evals.slices.split import Split
from training.windows import Window, fitted

BEGIN, USER, ASSISTANT, END, SYSTEM = range(5)
"""Ids of the chat tokenizer's special tokens."""
SYSTEM_SHARE = 0.15
"""Of the conversations that have none, so many get a plain system prompt, which changes nothing in the answer."""
SYSTEM_PROMPTS = (
    "You are a helpful assistant.",
    "You are a helpful, honest and concise assistant.",
    "You are Slipstream's chat model.",
    "You are a friendly assistant. Answer briefly.",
    "Answer the user's questions.",
    "You help people who are trying Slipstream.",
)
_SAMPLE = 24


class ChatCoder:
    """Conversations to token ids, as the chat template renders them."""

    def __init__(self, folder: Path) -> None:
        """folder: of the model whose tokenizer is used."""
        self._tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))

    def prompt(self, messages: Sequence[Message]) -> list[int]:
        """Up to and with the token after which the assistant speaks."""
        return [*self._encode(messages)[0], ASSISTANT]

    def conversation(self, item: Item) -> tuple[list[int], list[bool]]:
        """The item with its reference answer, and which tokens count."""
        return self._encode([*item.messages, assistant(item.reference)])

    def text(self, ids: Sequence[int]) -> str:
        """Token ids to text, without special tokens."""
        return str(self._tokenizer.decode(list(ids), skip_special_tokens=True))

    def ids(self, text: str) -> list[int]:
        """Text to token ids."""
        return list(self._tokenizer.encode(text).ids)

    def _encode(self, messages: Sequence[Message]) -> tuple[list[int], list[bool]]:
        tokens, counted = [BEGIN], [False]
        for message in messages:
            ids = self.ids(message["content"])
            if message["role"] == "assistant":
                tokens += [ASSISTANT, *ids, END]
                counted += [False, *[True] * (len(ids) + 1)]
            else:
                tokens += [USER if message["role"] == "user" else SYSTEM, *ids]
                counted += [False] * (len(ids) + 1)
        return tokens, counted


class ChatSource:
    """A WindowSource over slices, mixed by the share of tokens each is to have."""

    def __init__(self, coder: ChatCoder, shares: dict[Slice, float], seed: int) -> None:
        """shares: of the tokens, need not sum to one."""
        self._coder = coder
        self._seed = seed
        self._slices = [one for one, share in shares.items() if share > 0]
        # A share of tokens becomes a share of conversations by their mean length.
        self._weights = [shares[one] / self._mean_tokens(one) for one in self._slices]

    def window(self, number: int, length: int) -> Window:
        """Conversations until one no longer fits; that one is left out, and a few more are tried in its place."""
        choices = random.Random(f"{self._seed}/{length}/{number}")
        tokens: list[int] = []
        counted: list[bool] = []
        misses = 0
        while misses < 4 and len(tokens) < length - 16:
            which = choices.choices(self._slices, self._weights)[0]
            more, more_counted = self._conversation(which, choices)
            if len(tokens) + len(more) <= length + 1:
                tokens += more
                counted += more_counted
            else:
                misses += 1
        return fitted(tokens, counted, length, BEGIN)

    def _conversation(self, which: Slice, choices: random.Random) -> tuple[list[int], list[bool]]:
        item = which.item(choices.getrandbits(62), Split.TRAIN, for_training=True)
        if item.messages[0]["role"] != "system" and choices.random() < SYSTEM_SHARE:
            prompt = system(choices.choice(SYSTEM_PROMPTS))
            return self._coder.conversation(
                Item(which.name, (prompt, *item.messages), item.reference, item.check, item.marks)
            )
        return self._coder.conversation(item)

    def _mean_tokens(self, one: Slice) -> float:
        seeds = random.Random(f"{self._seed}/mean/{one.name}")
        lengths = [
            len(self._coder.conversation(one.item(seeds.getrandbits(62), Split.TRAIN, for_training=True))[0])
            for _ in range(_SAMPLE)
        ]
        return sum(lengths) / len(lengths)
