"""Long texts fit their length by the tokenizer given, and hold what they ask for."""

from __future__ import annotations

import collections
import re
from pathlib import Path

import pytest

from contracts.errors import ConfigError
from evals.slices import ruler
from evals.slices.catalogue import Catalogue
from evals.slices.item import Slice
from evals.slices.tokens import FolderTokenizer

ROOT = Path(__file__).parents[2]
LENGTHS = (1000, 3000)


@pytest.fixture(scope="module")
def count() -> FolderTokenizer:
    return FolderTokenizer(ROOT / "models" / "slipstream-chat")


@pytest.fixture(scope="module")
def slices(count: FolderTokenizer) -> dict[str, Slice]:
    return {one.name: one for one in ruler.slices(count, LENGTHS)}


def test_texts_are_as_long_as_their_name_says(slices: dict[str, Slice], count: FolderTokenizer) -> None:
    assert len(slices) == 7 * len(LENGTHS)
    for name, one in slices.items():
        length = int(name.rpartition("-")[2])
        for seed in range(2):
            item = one.item(seed)
            tokens = count(item.messages[0]["content"]) + item.max_tokens
            assert length - 80 <= tokens <= length, (name, tokens)


def test_all_wanted_values_are_right_and_some_are_right_in_part(slices: dict[str, Slice]) -> None:
    for one in slices.values():
        item = one.item(1)
        wanted = item.reference.split(", ")
        assert item.score(item.reference) == 1
        assert item.score("") == item.score("I do not know.") == 0
        assert item.score(f"It is {wanted[0]}.") == pytest.approx(1 / len(wanted))
        assert item.score(wanted[0] + "1") == 0


def test_equal_seeds_make_equal_texts_and_clusters_are_texts(slices: dict[str, Slice]) -> None:
    one = slices["ruler-cwe-1000"]
    assert one.item(5).messages == one.item(5).messages
    assert len({one.item(seed).cluster for seed in range(5)}) == 5


def test_needles_stand_once_in_the_text(slices: dict[str, Slice]) -> None:
    item = slices["ruler-niah-multiquery-1000"].item(0)
    text = item.messages[0]["content"]
    told = dict(re.findall(r"numbers for (\w+) is: (\d+)\.", text))
    asked = re.findall(r"\w+", text.rpartition("numbers for ")[2].partition(" mentioned")[0].replace(" and ", " "))
    assert [told[word] for word in asked] == item.reference.split(", ")
    for number in told.values():
        assert text.count(number) == 1


def test_variables_follow_from_the_number(slices: dict[str, Slice]) -> None:
    item = slices["ruler-vt-1000"].item(0)
    text = item.messages[0]["content"]
    holds = set(re.findall(r"VAR (\w+) = \d+\.", text))
    for name, before in re.findall(r"VAR (\w+) = VAR (\w+)\.", text):
        assert before in holds, "assigned before it is used"
        holds.add(name)
    assert holds == set(item.reference.split(", "))
    assert len(holds) == 5


@pytest.mark.parametrize("length", LENGTHS)
def test_common_and_frequent_words_are_the_most_common(slices: dict[str, Slice], length: int) -> None:
    for seed in range(3):
        item = slices[f"ruler-cwe-{length}"].item(seed)
        counted = collections.Counter(re.findall(r"\d+\. ([a-z]+)", item.messages[0]["content"])).most_common()
        assert {word for word, _ in counted[:10]} == set(item.reference.split(", "))
        assert counted[9][1] >= 2 * counted[10][1]
        item = slices[f"ruler-fwe-{length}"].item(seed)
        body = item.messages[0]["content"].partition("coded words. ")[2].partition("\nQuestion")[0]
        counted = collections.Counter(re.findall(r"[a-z]+", body)).most_common()
        assert [word for word, _ in counted[:3]] == item.reference.split(", ")
        assert counted[2][1] > counted[3][1]


def test_tokenizer_and_length_are_part_of_the_version(slices: dict[str, Slice], count: FolderTokenizer) -> None:
    assert len({one.version for one in slices.values()}) == len(slices)

    class Words:
        digest = "words"

        def __call__(self, text: str) -> int:
            return len(text.split())

    other = {one.name: one for one in ruler.slices(Words(), LENGTHS)}
    assert all(other[name].version != one.version for name, one in slices.items())
    assert other["ruler-vt-1000"].item(0).messages != slices["ruler-vt-1000"].item(0).messages


def test_too_short_a_length_is_said(count: FolderTokenizer) -> None:
    with pytest.raises(ValueError, match="too few for this task"):
        Catalogue(tokenizer=count, lengths=(200,)).find("ruler-cwe-200").item(0)


def test_a_folder_without_a_tokenizer_is_said(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"tokenizer\.json: no tokenizer can be read there"):
        FolderTokenizer(tmp_path)
