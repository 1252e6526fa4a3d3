"""Chat training reads what the chat template would render, and learns only what the assistant says."""

from __future__ import annotations

from pathlib import Path

import click
import pytest
import torch

from engines.tokenizer.tokenizer import Tokenizer
from evals.slices.item import Item
from evals.slices.registry import SLICES, find
from evals.slices.split import Split, side
from tools.training import export
from tools.training.chat_command import shares
from tools.training.chat_curve import learning_curve
from tools.training.chat_source import ASSISTANT, BEGIN, END, ChatCoder, ChatSource

FOLDER = Path("models/slipstream-chat")


@pytest.fixture(scope="module")
def coder() -> ChatCoder:
    return ChatCoder(FOLDER)


def test_a_conversation_is_what_the_template_renders(coder: ChatCoder) -> None:
    tokenizer = Tokenizer.load(FOLDER)
    with_system = 0
    for seed in range(60):
        item = find("multi-turn").item(seed, Split.TRAIN)
        with_system += item.messages[0]["role"] == "system"
        assert coder.prompt(item.messages) == tokenizer.chat_ids([dict(message) for message in item.messages])
    assert with_system


def test_only_answers_and_their_ends_count(coder: ChatCoder) -> None:
    item = find("multi-turn").item(3, Split.TRAIN)
    tokens, counted = coder.conversation(item)
    said = [m["content"] for m in item.messages if m["role"] == "assistant"] + [item.reference]
    spoken = [token for token, counts in zip(tokens, counted, strict=True) if counts]
    assert spoken == [id_ for text in said for id_ in [*coder.ids(text), END]]


def test_windows_depend_on_their_number_only_and_hold_whole_conversations(coder: ChatCoder) -> None:
    mix = {find("facts"): 1.0, find("json"): 1.0}
    window = ChatSource(coder, mix, 5).window(7, 256)
    assert window == ChatSource(coder, mix, 5).window(7, 256)
    assert window != ChatSource(coder, mix, 6).window(7, 256)
    assert len(window.tokens) == len(window.counted) == 257
    text = window.tokens[: len(window.tokens) - window.tokens[::-1].index(END)]
    # Every conversation that begins also ends; what follows the last end is padding.
    assert text.count(BEGIN) > 3
    assert all(piece == BEGIN for piece in window.tokens[len(text) :])
    assert text.count(ASSISTANT) == text.count(END)


def test_training_reads_nothing_held_out(coder: ChatCoder, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[Item] = []
    conversation = ChatCoder.conversation

    def listening(self: ChatCoder, item: Item) -> tuple[list[int], list[bool]]:
        read.append(item)
        return conversation(self, item)

    monkeypatch.setattr(ChatCoder, "conversation", listening)
    mix = {one: 1.0 for one in SLICES if one.name not in ("retrieval-2000", "retrieval-4000")}
    source = ChatSource(coder, mix, 1)
    for number in range(20):
        source.window(number, 512)
    assert {item.slice for item in read} == {one.name for one in mix}
    assert all(side(*mark) is Split.TRAIN for item in read for mark in item.marks)


def test_the_curve_counts_an_item_only_if_every_token_of_its_answer_is_right(coder: ChatCoder) -> None:
    """Against greedy decoding, token by token."""
    model = export.load(FOLDER)
    curve = learning_curve(coder, ["facts"], 6)(model)["facts"]
    right = 0
    for seed in range(6):
        item = find("facts").item(seed, Split.HELD_OUT)
        ids = coder.prompt(item.messages)
        wanted = [*coder.ids(item.reference), END]
        for _ in wanted:
            with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
                ids.append(int(model.scores(model(torch.tensor([ids]))[0, -1]).argmax()))
        right += ids[-len(wanted) :] == wanted
    assert curve == pytest.approx(right / 6)


def test_a_mix_names_slices() -> None:
    assert shares("facts:1,json:2.5") == {"facts": 1.0, "json": 2.5}
    with pytest.raises(click.BadParameter, match="jsn"):
        shares("facts:1,jsn:2")
