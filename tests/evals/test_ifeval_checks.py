"""Each instruction of IFEval is kept by what keeps it and by nothing else."""

from __future__ import annotations

from typing import Any

import pytest

from evals.slices.files.ifeval_checks import INSTRUCTIONS, LEFT_OUT, WrongArguments, check_of, sentences

CASES: list[tuple[str, dict[str, Any], list[str], list[str]]] = [
    ("keywords:existence", {"keywords": ["net", "Fish"]}, ["Fish in a NET"], ["fish", "net", ""]),
    (
        "keywords:frequency",
        {"keyword": "net", "frequency": 2, "relation": "at least"},
        ["Net, net", "nets net"],
        ["net"],
    ),
    ("keywords:frequency", {"keyword": "net", "frequency": 2, "relation": "less than"}, ["net", ""], ["net net"]),
    ("keywords:forbidden_words", {"forbidden_words": ["net", "a.b"]}, ["nets", "axb"], ["a Net.", "so a.b"]),
    (
        "keywords:letter_frequency",
        {"letter": "e", "let_frequency": 3, "let_relation": "at least"},
        ["Eee", "every tree"],
        ["tree"],
    ),
    (
        "length_constraints:number_sentences",
        {"num_sentences": 2, "relation": "at least"},
        ["One. Two!", "Mr. A left. So?"],
        ["One.", "It is 2.5 long."],
    ),
    (
        "length_constraints:number_sentences",
        {"num_sentences": 2, "relation": "less than"},
        ["Only one."],
        ["One. Two."],
    ),
    (
        "length_constraints:number_paragraphs",
        {"num_paragraphs": 2},
        ["a\n***\nb", "***\na\n***\nb"],
        ["a", "a\n\nb", "a\n***\n \n***\nb"],
    ),
    ("length_constraints:number_words", {"num_words": 3, "relation": "at least"}, ["one two three"], ["one two"]),
    (
        "length_constraints:nth_paragraph_first_word",
        {"num_paragraphs": 2, "nth_paragraph": 2, "first_word": "Fish"},
        ["One.\n\nfish swim", 'One.\n\n"Fish", he said', "One.\n\n\n\nfish."],
        ["fish\n\nOne", "One.\n\nFishes", "One.\n\nfish\n\nTwo", "fish"],
    ),
    ("detectable_content:number_placeholders", {"num_placeholders": 2}, ["[name] and [date]"], ["[name]", "name date"]),
    ("detectable_content:postscript", {"postscript_marker": "P.S."}, ["Bye.\nP.S. more", "p. s. more"], ["PS more"]),
    ("detectable_content:postscript", {"postscript_marker": "P.P.S"}, ["P.P.S more"], ["P.S. more"]),
    (
        "detectable_format:number_bullet_lists",
        {"num_bullets": 2},
        ["* a\n* b", "- a\n  - b"],
        ["* a", "* a\n* b\n- c", "**a**\n* b"],
    ),
    (
        "detectable_format:constrained_response",
        {},
        ["My answer is yes.", "So: my answer is maybe."],
        ["yes", "My answer is"],
    ),
    (
        "detectable_format:number_highlighted_sections",
        {"num_highlights": 2},
        ["*a* and *b c*", "**a** *b*"],
        ["*a*", "**a**", "* a\n* b"],
    ),
    (
        "detectable_format:multiple_sections",
        {"section_spliter": "SECTION", "num_sections": 2},
        ["SECTION 1\na\nSECTION 2\nb"],
        ["SECTION 1\na", "SECTION a SECTION b"],
    ),
    (
        "detectable_format:json_format",
        {},
        ['{"a": 1}', '```json\n{"a": 1}\n```'],
        ["a: 1", '{"a": 1} done', "```\n```"],
    ),
    ("detectable_format:title", {}, ["<<The sea>>\nWaves."], ["<The sea>", "<<>>", "<< >>"]),
    ("combination:two_responses", {}, ["a\n******\nb"], ["a", "a******a", "a******b******c", "******a"]),
    ("combination:repeat_prompt", {"prompt_to_repeat": "Say hi."}, ["say hi. Hi!"], ["Hi! Say hi."]),
    (
        "startend:end_checker",
        {"end_phrase": "That is all."},
        ["Hi. That is all.", '"Hi. that is all."'],
        ["That is all. Hi"],
    ),
    ("startend:quotation", {}, ['"Hi."', ' "a "b" c" '], ['"Hi.', "Hi", '"']),
    (
        "change_case:capital_word_frequency",
        {"capital_frequency": 2, "capital_relation": "less than"},
        ["ONE two"],
        ["ONE TWO", "I AM"],
    ),
    ("change_case:english_capital", {}, ["HI, 2 OF YOU"], ["Hi", "12", "ПРИВЕТ"]),
    ("change_case:english_lowercase", {}, ["hi, 2 of you"], ["Hi", "12", "привет"]),
    ("punctuation:no_comma", {}, ["a b"], ["a, b"]),
]


@pytest.mark.parametrize(
    ("name", "given", "kept", "broken"), CASES, ids=lambda one: one if isinstance(one, str) else ""
)
def test_an_instruction_is_kept_or_broken(name: str, given: dict[str, Any], kept: list[str], broken: list[str]) -> None:
    check = check_of(name, given)
    assert [answer for answer in kept if not check(answer)] == []
    assert [answer for answer in broken if check(answer)] == []


def test_every_published_instruction_is_known_and_tried() -> None:
    assert {name for name, *_ in CASES} == set(INSTRUCTIONS)
    assert len(INSTRUCTIONS) + len(LEFT_OUT) == 25


def test_unknown_instructions_and_arguments_are_refused() -> None:
    with pytest.raises(KeyError, match="keywords:absence"):
        check_of("keywords:absence", {})
    for name, given, at_fault in (
        ("keywords:existence", {"keywords": []}, "keywords"),
        ("keywords:existence", {"keywords": ["a"], "letter": "b"}, "letter"),
        ("length_constraints:number_words", {"num_words": 2.5, "relation": "at least"}, "num_words"),
        ("length_constraints:number_words", {"num_words": True, "relation": "at least"}, "num_words"),
        ("length_constraints:number_words", {"num_words": 2}, "relation"),
    ):
        with pytest.raises(WrongArguments) as caught:
            check_of(name, given)
        assert caught.value.name == at_fault


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("", 0),
        ("One", 1),
        ("One.", 1),
        ("One. Two.", 2),
        ("Really?! Yes.", 2),
        ("It costs 2.50. Cheap.", 2),
        ("Dr. Who met e.g. Mr. Stone. Then he left.", 2),
        ('He said "Stop." Then left.', 2),
        ("- one\n\n- two", 2),
        ("...", 0),
    ],
)
def test_sentences_are_counted_by_their_ends(text: str, count: int) -> None:
    assert sentences(text) == count
