"""Windows of whole generated conversations, packed, from the training side of the slices in evals/.

Only the assistant's messages count towards the loss, including their end tokens.
"""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Sequence
from pathlib import Path

from tokenizers import Tokenizer

from evals.slices.item import Item, Message, Slice, assistant, system
from evals.slices.split import Split
from tools.training.chat_vocabulary import SPACE
from tools.training.copying import CopyingSource
from tools.training.windows import Window, fitted

BEGIN, USER, ASSISTANT, END, SYSTEM = range(5)
"""Ids of the chat tokenizer's special tokens."""
POSITIONS = 4608
"""Context of the chat model: a text of 4,000 tokens, the question and the answer."""
SYSTEM_SHARE = 0.15
"""Share of conversations without a system prompt that get a plain one, which does not change the answer."""
JOINED_SHARE = 0.2
"""Share of conversations that continue with a question of any slice, as people ask several in a conversation."""
RULES = "multi-turn"
"""The slice that may set a rule for all later messages, so that no other question may follow."""
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
    """Encodes conversations as token ids, as the chat template renders them."""

    def __init__(self, folder: Path) -> None:
        """folder: of the model whose tokenizer is used."""
        self._tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))

    def prompt(self, messages: Sequence[Message]) -> list[int]:
        """Token ids up to and including the token after which the assistant answers."""
        return [*self._encode(messages)[0], ASSISTANT]

    def conversation(self, item: Item) -> tuple[list[int], list[bool]]:
        """The item with its reference answer, and which tokens count towards the loss."""
        return self._encode([*item.messages, assistant(item.reference)])

    @property
    def vocabulary(self) -> int:
        """Number of token ids."""
        return int(self._tokenizer.get_vocab_size())

    def twins(self) -> list[tuple[int, int]]:
        """Pairs of ids: a piece without and with a space before it, if both exist."""
        pieces = self._tokenizer.get_vocab()
        spaced = ((piece[1:], id_) for piece, id_ in sorted(pieces.items()) if len(piece) > 1 and piece[0] == SPACE)
        return [(pieces[plain], id_) for plain, id_ in spaced if plain in pieces]

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
    """A WindowSource over slices, mixed by their shares of the tokens."""

    def __init__(self, coder: ChatCoder, shares: dict[Slice, float], seed: int, copying: float = 0.0) -> None:
        """shares: of the tokens; they need not add up to 1. copying: share of the windows from a CopyingSource."""
        self._copying = copying
        self._copies = CopyingSource(coder.vocabulary, seed, coder.twins())
        self._coder = coder
        self._seed = seed
        self._slices = [one for one, share in shares.items() if share > 0]
        # the mean length turns a share of tokens into a share of conversations
        self._weights = [shares[one] / self._mean_tokens(one) for one in self._slices]

    def window(self, number: int, length: int) -> Window:
        """Conversations until the window is full. One that does not fit is left out, and a few others are tried."""
        choices = random.Random(f"{self._seed}/{length}/{number}")
        if choices.random() < self._copying:
            return self._copies.window(number, length)
        tokens: list[int] = []
        counted: list[bool] = []
        misses = 0
        while misses < 4 and len(tokens) < length - 16:
            drawn = choices.choices(self._slices, self._weights)[0]
            more, more_counted = self._conversation(drawn, choices)
            if len(tokens) + len(more) <= length + 1:
                tokens += more
                counted += more_counted
            else:
                misses += 1
        return fitted(tokens, counted, length, BEGIN)

    def _conversation(self, drawn: Slice, choices: random.Random) -> tuple[list[int], list[bool]]:
        item = drawn.item(choices.getrandbits(62), Split.TRAIN, for_training=True)
        if drawn.name != RULES and choices.random() < JOINED_SHARE:
            after = choices.choices(self._slices, self._weights)[0].item(choices.getrandbits(62), Split.TRAIN)
            if after.messages[0]["role"] != "system":
                before = (*item.messages, assistant(item.reference))
                item = dataclasses.replace(
                    after, messages=(*before, *after.messages), marks=(*item.marks, *after.marks)
                )
        if item.messages[0]["role"] != "system" and choices.random() < SYSTEM_SHARE:
            prompt = system(choices.choice(SYSTEM_PROMPTS))
            item = dataclasses.replace(item, messages=(prompt, *item.messages))
        return self._coder.conversation(item)

    def _mean_tokens(self, one: Slice) -> float:
        seeds = random.Random(f"{self._seed}/mean/{one.name}")
        lengths = [
            len(self._coder.conversation(one.item(seeds.getrandbits(62), Split.TRAIN, for_training=True))[0])
            for _ in range(_SAMPLE)
        ]
        return sum(lengths) / len(lengths)
