"""Copying is laid out in the first weights, the windows that exercise it can be known, and words are cut alike."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
import torch
from torch.nn import functional

from evals.slices.draw import Draw
from evals.slices.split import Split
from evals.slices.vocabulary import CITIES, COMMON, NAMES
from tools.training.chat_source import ChatCoder
from tools.training.chat_vocabulary import learn
from tools.training.copying import CopyingSource
from tools.training.copying_circuit import lay_out
from tools.training.model import Llama, Shape

FOLDER = Path("models/slipstream-chat")


def untrained(theta: float = 1e6) -> Llama:
    model = Llama(
        Shape(
            vocab_size=2048,
            hidden_size=256,
            intermediate_size=256,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_key_value_heads=4,
            head_dim=64,
            max_position_embeddings=512,
            rope_theta=theta,
        )
    )
    model.initialise(torch.Generator().manual_seed(1))
    return model


@torch.no_grad()
def copied(model: Llama) -> float:
    """Share of a passage of 32 random ids, said again, whose next token is the likeliest."""
    passage = torch.randint(5, 2048, (16, 32), generator=torch.Generator().manual_seed(7))
    ids = torch.cat((passage, passage), 1)
    best = model.scores(model(ids)).argmax(-1)
    return float((best[:, 32:-1] == ids[:, 33:]).float().mean())


def test_a_model_copies_before_it_is_trained() -> None:
    model = untrained()
    assert copied(model) < 0.1
    lay_out(model, torch.Generator().manual_seed(2))
    assert copied(model) > 0.5


def test_a_piece_with_a_space_begins_as_its_twin_plus_a_direction_that_all_share() -> None:
    model = untrained()
    twins = [(number, number + 1000) for number in range(100, 400)]
    lay_out(model, torch.Generator().manual_seed(2), twins, [[number] for number in range(10, 20)])
    table = model.embedding.detach()
    plain, spaced = (torch.tensor(side) for side in zip(*twins, strict=True))
    differences = table[spaced] - table[plain]
    assert torch.allclose(differences, differences[:1].expand_as(differences), atol=1e-6)
    assert differences[0].norm() > 0.3


def test_digits_begin_in_their_order() -> None:
    """Digits two apart are more alike than digits six or more apart (all of them of one parity, as circles set it)."""
    model = untrained()
    lay_out(model, torch.Generator().manual_seed(2), (), [[number] for number in range(10, 20)])
    digits = model.embedding.detach()[10:20]
    alike = functional.cosine_similarity(digits[:, None] - digits.mean(0), digits[None] - digits.mean(0), dim=-1)
    near, far = alike.diagonal(2), torch.cat((alike.diagonal(6), alike.diagonal(8)))
    assert near.mean() > far.mean() + 0.1


def test_a_circuit_needs_a_key_head_for_every_query_head() -> None:
    shape = msgspec.structs.replace(untrained().shape, num_key_value_heads=2)
    with pytest.raises(ValueError, match="key head"):
        lay_out(Llama(shape), torch.Generator())


def test_counted_tokens_can_be_known_from_the_window() -> None:
    source = CopyingSource(2048, 3)
    counted_tokens = 0
    for number in range(40):
        window = source.window(number, 256)
        assert window == CopyingSource(2048, 3).window(number, 256)
        assert len(window.tokens) == len(window.counted) == 257
        for place, (token, counts) in enumerate(zip(window.tokens, window.counted, strict=True)):
            counted_tokens += counts
            assert 5 <= token < 2048
            assert not counts or token in window.tokens[:place]
    assert counted_tokens > 0.2 * 40 * 257
    assert source.window(0, 256) != CopyingSource(2048, 4).window(0, 256)


@pytest.mark.parametrize("split", list(Split))
def test_the_shipped_vocabulary_cuts_a_word_alike_wherever_it_stands(split: Split) -> None:
    coder = ChatCoder(FOLDER)
    draw = Draw(1, split)
    for word in [*draw.words(200), *COMMON, *NAMES, *CITIES]:
        alone, after_space = coder.ids(word), coder.ids(f" {word}")
        assert alone[1:] == after_space[1:] or alone == after_space[1:], word  # a rare first piece stands apart
        assert coder._tokenizer.decode(alone) == word


def test_a_space_joins_whole_first_pieces_only() -> None:
    text = "the plan of the plant is a plain plan, plan by plan; plant the plants in the garden"
    tokenizer = learn([text] * 20, [" ka", "ve", "lo"], 340)
    assert tokenizer.encode(" kavelo").tokens == ["\u0120ka", "ve", "lo"]
    assert tokenizer.encode(" plant").tokens == ["\u0120" + (first := tokenizer.encode("plant").tokens)[0], *first[1:]]
    unseen = "\u00fcber \u4f60\u597d\n    \t x"
    assert tokenizer.decode(tokenizer.encode(unseen).ids) == unseen
    assert tokenizer.get_vocab_size() == 340
