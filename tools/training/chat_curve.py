"""The chat model's learning curve: how many held-out items it would answer exactly as the reference.

An item is right if the model's most likely token is the reference's at every position of the last answer, given the
positions before it. Greedy decoding would then return the reference, but this needs only one forward pass. Other
answers that a check would accept do not count, so this is a lower bound of what evals.table measures.
"""

from __future__ import annotations

from collections.abc import Callable

import torch

from evals.slices.registry import find
from evals.slices.split import Split
from tools.training.chat_source import BEGIN, ChatCoder
from tools.training.model import Llama

_AT_ONCE_TOKENS = 8192


def learning_curve(
    coder: ChatCoder, names: list[str], count: int, seed: int = 0
) -> Callable[[Llama], dict[str, float]]:
    """Share of held-out items of each slice that greedy decoding answers exactly as the reference."""
    slices = {
        name: [coder.conversation(find(name).item(seed + number, Split.HELD_OUT)) for number in range(count)]
        for name in names
    }

    def evaluate(model: Llama) -> dict[str, float]:
        return {name: _exact(model, conversations) for name, conversations in slices.items()}

    return evaluate


@torch.no_grad()
def _exact(model: Llama, conversations: list[tuple[list[int], list[bool]]]) -> float:
    right = 0
    at_once = max(1, _AT_ONCE_TOKENS // max(len(tokens) for tokens, _ in conversations))
    for start in range(0, len(conversations), at_once):
        part = conversations[start : start + at_once]
        longest = max(len(tokens) for tokens, _ in part)
        ids = torch.tensor([tokens + [BEGIN] * (longest - len(tokens)) for tokens, _ in part])
        # only the last answer counts: the conversation before it is part of the prompt
        counted = torch.tensor([_last_answer(counted) + [False] * (longest - len(counted)) for _, counted in part])
        with torch.autocast("cpu", torch.bfloat16):
            hidden = model(ids[:, :-1])
            rows, columns = counted[:, 1:].nonzero(as_tuple=True)
            best = model.scores(hidden[rows, columns]).argmax(-1)
        wrong = rows[best != ids[:, 1:][rows, columns]]
        right += len(part) - len(set(wrong.tolist()))
    return right / len(conversations)


def _last_answer(counted: list[bool]) -> list[bool]:
    start = len(counted) - counted[::-1].index(False)
    return [counts and index >= start for index, counts in enumerate(counted)]
