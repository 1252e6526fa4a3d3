"""What is drawn for training and for held-out items cannot meet: not in a word, a number, a pair, a phrase. What the
texts show besides is read from the texts: sentences that are the same for everybody hold some of the known words.
"""

from __future__ import annotations

import functools
import re
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evals.slices.draw import FIRST_SYLLABLES, NEXT_SYLLABLES, Draw
from evals.slices.item import Item, Slice
from evals.slices.registry import SLICES, find
from evals.slices.split import Split, side
from evals.slices.vocabulary import CITIES, COMMON, NAMES
from tests.examples import examples

LONG = ("retrieval-500", "retrieval-2000", "retrieval-4000")
QUICK = tuple(one for one in SLICES if one.name not in LONG)

INVENTED = re.compile(rf"(?:{'|'.join(FIRST_SYLLABLES)})(?:{'|'.join(NEXT_SYLLABLES)}){{1,2}}")
REAL_WORDS = {"move", "banana", "more", "nine", "lune", "luna"}
"""Of fixed sentences, and by chance made of the syllables of invented ones."""
MET_IN_TRAINING = set(
    "Ankara Lima Moscow Rome age array car chair cow flat flower link milk move news oil onion person real red short "
    "size spider token turn web".split()
)
"""Known words of the held-out side that training's sentences hold all the same: as facts, translations, refusals and
their twins, keys of JSON and what the model says about itself. docs/concepts/models.md says so."""


def items(one: Slice, split: Split, count: int, *, for_training: bool = False) -> list[Item]:
    return [one.item(seed, split, for_training=for_training) for seed in range(count)]


@functools.cache
def words_of(split: Split) -> set[str]:
    """Of all that a model reads of a side: questions, answers between them, references."""
    found: set[str] = set()
    for one in SLICES:
        for item in items(one, split, 400 if one in QUICK else 10, for_training=split is Split.TRAIN):
            for text in (*(message["content"] for message in item.messages), item.reference):
                found.update(re.findall(r"[A-Za-z]+", text))
    return found


def asked(item: Item) -> str:
    return "\n".join(f"{message['role']}: {message['content']}" for message in item.messages)


@pytest.mark.parametrize("one", QUICK, ids=lambda one: one.name)
@examples(nightly=150)
@given(seed=st.integers(0, 2**62), split=st.sampled_from(Split), for_training=st.booleans())
def test_all_an_item_is_made_of_is_of_its_side(one: Slice, seed: int, split: Split, for_training: bool) -> None:
    item = one.item(seed, split, for_training=for_training)
    assert all(side(*mark) is split for mark in item.marks)
    assert any(mark[0].startswith("phrase:") for mark in item.marks)


@pytest.mark.parametrize("one", SLICES, ids=lambda one: one.name)
def test_no_question_is_on_both_sides(one: Slice) -> None:
    count = 300 if one in QUICK else 8
    train = {asked(item) for item in items(one, Split.TRAIN, count, for_training=True)}
    train |= {asked(item) for item in items(one, Split.TRAIN, count)}
    held_out = {asked(item) for item in items(one, Split.HELD_OUT, count)}
    assert not train & held_out


def test_pairs_of_numbers_are_on_one_side_in_either_order() -> None:
    """Read from the questions, not from the marks."""

    def pairs(split: Split) -> set[tuple[int, ...]]:
        asked_in_turn = items(find("arithmetic"), split, 1000, for_training=True)
        texts = [one["content"] for item in asked_in_turn for one in item.messages if one["role"] == "user"]
        found = {tuple(sorted(map(int, re.findall(r"\d+", text)))) for text in texts}
        return {pair for pair in found if pair[0] >= 10}

    train, held_out = pairs(Split.TRAIN), pairs(Split.HELD_OUT)
    assert len(train) > 1000
    assert len(held_out) > 300
    assert not train & held_out


def test_keys_and_values_of_a_text_are_on_one_side() -> None:
    """Read from the texts."""

    def words(split: Split) -> set[str]:
        texts = [asked(item) for item in items(find("retrieval-500"), split, 40)]
        return {word for text in texts for pair in re.findall(r" of (\w+) is (\w+)\.", text) for word in pair}

    train, held_out = words(Split.TRAIN), words(Split.HELD_OUT)
    assert min(len(train), len(held_out)) > 1000
    assert not train & held_out


@pytest.mark.parametrize("split", Split)
def test_no_invented_word_of_the_other_side_is_in_any_text(split: Split) -> None:
    """Read from the texts of all slices."""
    invented = {word for word in words_of(split) if INVENTED.fullmatch(word)} - REAL_WORDS
    assert len(invented) > 5000
    assert {word for word in invented if side("word", word) is not split} == set()


def test_the_known_held_out_words_that_training_reads_are_named() -> None:
    """Read from the texts of all slices: what is drawn is held out, not what a sentence always says."""
    held_out = {word for word in (*COMMON, *NAMES, *CITIES) if side("word", word) is Split.HELD_OUT}
    assert (len(held_out), len(MET_IN_TRAINING)) == (98, 26), "the figures of docs/concepts/models.md"
    met = words_of(Split.TRAIN) & held_out
    assert met <= MET_IN_TRAINING
    assert len(met) >= 20, "the texts were read"


def test_the_side_of_a_value_is_the_same_in_every_process() -> None:
    words = ("stone", "salt", "flower", "river")
    program = f"from evals.slices.split import side; print([str(side('word', word)) for word in {words}])"
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "['train', 'held-out', 'held-out', 'train']"


def test_a_part_of_the_values_is_held_out() -> None:
    held_out = sum(side("number", str(number)) is Split.HELD_OUT for number in range(8000))
    assert 900 < held_out < 1100


@pytest.mark.parametrize("one", SLICES, ids=lambda one: one.name)
def test_equal_seeds_make_equal_items_and_others_differ(one: Slice) -> None:
    first, again, other = (one.item(seed, Split.TRAIN) for seed in (3, 3, 4))
    assert (first.messages, first.reference, first.marks) == (again.messages, again.reference, again.marks)
    assert first.marks != other.marks


def test_slices_need_nothing_but_the_standard_library() -> None:
    program = (
        "import sys, evals.slices.registry\n"
        "roots = {name.partition('.')[0] for name in sys.modules}\n"
        "print(sorted(root for root in roots if root not in sys.stdlib_module_names and not root.startswith('_')))"
    )
    found = subprocess.run(
        [sys.executable, "-S", "-c", program], capture_output=True, text=True, check=True, env={"PYTHONPATH": "."}
    )
    assert found.stdout.strip() == "['evals']"


def test_a_list_without_words_of_a_side_is_an_error_and_no_word_of_the_other() -> None:
    with pytest.raises(AssertionError, match="no word of this side"):
        Draw(0, Split.HELD_OUT).known(("river", "stone"))
