"""The checkable instructions of IFEval (Zhou et al. 2023), each by the rule its name stands for, strictly.

Three of the published checkers ask a library that downloads its data. Ours do without: sentences are counted by their
closing marks, words by letters and digits, and text "in English" capitals or small letters must have Latin letters.
`language:response_language` needs a language detector and is not here: questions that ask for it are left out by name.
"""

from __future__ import annotations

import collections
import json
import re
from collections.abc import Callable, Mapping
from typing import Any

Check = Callable[[str], bool]

LEFT_OUT = frozenset({"language:response_language"})
"""Published instructions that cannot be checked here."""
_ABBREVIATIONS = re.compile(r"\b(?:Mr|Mrs|Ms|Dr|Prof|St|Jr|Sr|vs|etc|e\.g|i\.e|a\.m|p\.m|[A-Z])\.", re.IGNORECASE)
_OPTIONS = ("my answer is yes.", "my answer is no.", "my answer is maybe.")


class WrongArguments(Exception):
    """The arguments of an instruction do not fit it. name: which."""

    def __init__(self, name: str, message: str) -> None:
        """message: what it must be."""
        super().__init__(message)
        self.name = name


class _Arguments:
    """Of one instruction: taken by name and type, and all of them."""

    def __init__(self, given: Mapping[str, Any]) -> None:
        # The published file has null for what belongs to other instructions.
        self._given = {name: value for name, value in given.items() if value is not None}

    def text(self, name: str) -> str:
        value = self._given.pop(name, None)
        if not isinstance(value, str) or not value.strip():
            raise WrongArguments(name, "must be a text")
        return value

    def texts(self, name: str) -> list[str]:
        value = self._given.pop(name, None)
        if not isinstance(value, list) or not value or not all(isinstance(one, str) and one for one in value):
            raise WrongArguments(name, "must be a list of texts")
        return value

    def number(self, name: str) -> int:
        value = self._given.pop(name, None)
        if isinstance(value, bool) or not isinstance(value, int | float) or value != int(value) or value < 0:
            raise WrongArguments(name, "must be a whole number from 0")
        return int(value)

    def compared(self, relation: str, number: str) -> Callable[[int], bool]:
        wanted = self.number(number)
        said = self._given.pop(relation, None)
        if said == "at least":
            return lambda count: count >= wanted
        if said == "less than":
            return lambda count: count < wanted
        raise WrongArguments(relation, "must be `at least` or `less than`")

    def end(self) -> None:
        for name in self._given:
            raise WrongArguments(name, "is no argument of this instruction")


def check_of(instruction: str, given: Mapping[str, Any]) -> Check:
    """Whether an answer follows an instruction. Raises KeyError for an unknown one, WrongArguments."""
    arguments = _Arguments(given)
    check = INSTRUCTIONS[instruction](arguments)
    arguments.end()
    return check


def _existence(a: _Arguments) -> Check:
    keywords = [one.lower() for one in a.texts("keywords")]
    return lambda answer: all(one in answer.lower() for one in keywords)


def _frequency(a: _Arguments) -> Check:
    keyword, enough = a.text("keyword").strip().lower(), a.compared("relation", "frequency")
    return lambda answer: enough(answer.lower().count(keyword))


def _forbidden(a: _Arguments) -> Check:
    words = [re.compile(rf"(?<!\w){re.escape(one)}(?!\w)", re.IGNORECASE) for one in a.texts("forbidden_words")]
    return lambda answer: not any(word.search(answer) for word in words)


def _letters(a: _Arguments) -> Check:
    letter, enough = a.text("letter").strip().lower(), a.compared("let_relation", "let_frequency")
    return lambda answer: enough(collections.Counter(answer.lower())[letter])


def sentences(text: str) -> int:
    """How many sentences a text has: runs of words up to a closing mark, a line's end after one, or the end."""
    plain = _ABBREVIATIONS.sub(lambda found: found[0].replace(".", ""), re.sub(r"(?<=\d)\.(?=\d)", "", text))
    return sum(bool(re.search(r"\w", part)) for part in re.split(r"(?<=[.!?…])[\"'”’)\]*]*(?:\s+|$)|\n{2,}", plain))


def _sentences(a: _Arguments) -> Check:
    enough = a.compared("relation", "num_sentences")
    return lambda answer: enough(sentences(answer))


def _words(a: _Arguments) -> Check:
    enough = a.compared("relation", "num_words")
    return lambda answer: enough(len(re.findall(r"\w+", answer)))


def _paragraphs(a: _Arguments) -> Check:
    wanted = a.number("num_paragraphs")

    def check(answer: str) -> bool:
        parts = re.split(r"\s?\*\*\*\s?", answer)
        inner = parts[1:-1]
        return all(part.strip() for part in inner) and sum(bool(part.strip()) for part in parts) == wanted

    return check


def _first_word(a: _Arguments) -> Check:
    count, place, word = a.number("num_paragraphs"), a.number("nth_paragraph"), a.text("first_word").lower()

    def check(answer: str) -> bool:
        parts = [part.strip() for part in answer.split("\n\n") if part.strip()]
        if len(parts) != count or not 1 <= place <= count:
            return False
        first = re.match(r"[\"'“‘*_]*([^\s.,?!\"'”’*_]+)", parts[place - 1])
        return first is not None and first[1].lower() == word

    return check


def _placeholders(a: _Arguments) -> Check:
    wanted = a.number("num_placeholders")
    return lambda answer: len(re.findall(r"\[.*?\]", answer)) >= wanted


def _postscript(a: _Arguments) -> Check:
    marker = a.text("postscript_marker").strip()
    letters = {"P.P.S": r"p\.\s?p\.\s?s", "P.S.": r"p\.\s?s\."}.get(marker, re.escape(marker.lower()))
    return lambda answer: re.search(rf"(?m){letters}.*$", answer.lower()) is not None


def _bullets(a: _Arguments) -> Check:
    wanted = a.number("num_bullets")
    return lambda answer: len(re.findall(r"(?m)^\s*(?:\*[^*\n]|-).*$", answer)) == wanted


def _constrained(_: _Arguments) -> Check:
    return lambda answer: any(option in answer.strip().lower() for option in _OPTIONS)


def _highlights(a: _Arguments) -> Check:
    wanted = a.number("num_highlights")

    def check(answer: str) -> bool:
        double = re.findall(r"\*\*([^\n*]+)\*\*", answer)
        single = re.findall(r"\*([^\n*]+)\*", re.sub(r"\*\*[^\n*]*\*\*", " ", answer))
        return sum(bool(one.strip()) for one in (*double, *single)) >= wanted

    return check


def _sections(a: _Arguments) -> Check:
    word, wanted = a.text("section_spliter").strip(), a.number("num_sections")
    return lambda answer: len(re.findall(rf"{re.escape(word)}\s?\d+", answer)) >= wanted


def _json(_: _Arguments) -> Check:
    def check(answer: str) -> bool:
        inner = re.fullmatch(r"\s*```(?:json)?\s*(.*?)\s*```\s*", answer, re.DOTALL | re.IGNORECASE)
        try:
            json.loads(inner[1] if inner else answer)
        except (ValueError, RecursionError):
            return False
        return True

    return check


def _title(_: _Arguments) -> Check:
    return lambda answer: any(one.strip(" <>") for one in re.findall(r"<<([^\n]+?)>>", answer))


def _two_responses(_: _Arguments) -> Check:
    def check(answer: str) -> bool:
        parts = [part.strip() for part in answer.split("******")]
        said = [part for part in parts if part]
        return all(parts[1:-1]) and len(said) == 2 and said[0] != said[1]

    return check


def _repeat(a: _Arguments) -> Check:
    prompt = a.text("prompt_to_repeat").strip().lower()
    return lambda answer: answer.strip().lower().startswith(prompt)


def _ends(a: _Arguments) -> Check:
    phrase = a.text("end_phrase").strip().lower()
    return lambda answer: answer.strip().strip('"').lower().endswith(phrase)


def _capital_words(a: _Arguments) -> Check:
    enough = a.compared("capital_relation", "capital_frequency")
    return lambda answer: enough(sum(word.isupper() for word in re.findall(r"\w[\w'’-]*", answer)))


def _capitals(_: _Arguments) -> Check:
    return lambda answer: answer.isupper() and re.search(r"[A-Z]", answer) is not None


def _small(_: _Arguments) -> Check:
    return lambda answer: answer.islower() and re.search(r"[a-z]", answer) is not None


def _no_comma(_: _Arguments) -> Check:
    return lambda answer: "," not in answer


def _quoted(_: _Arguments) -> Check:
    def check(answer: str) -> bool:
        said = answer.strip()
        return len(said) > 1 and said[0] == said[-1] == '"'

    return check


INSTRUCTIONS: Mapping[str, Callable[[_Arguments], Check]] = {
    "keywords:existence": _existence,
    "keywords:frequency": _frequency,
    "keywords:forbidden_words": _forbidden,
    "keywords:letter_frequency": _letters,
    "length_constraints:number_sentences": _sentences,
    "length_constraints:number_paragraphs": _paragraphs,
    "length_constraints:number_words": _words,
    "length_constraints:nth_paragraph_first_word": _first_word,
    "detectable_content:number_placeholders": _placeholders,
    "detectable_content:postscript": _postscript,
    "detectable_format:number_bullet_lists": _bullets,
    "detectable_format:constrained_response": _constrained,
    "detectable_format:number_highlighted_sections": _highlights,
    "detectable_format:multiple_sections": _sections,
    "detectable_format:json_format": _json,
    "detectable_format:title": _title,
    "combination:two_responses": _two_responses,
    "combination:repeat_prompt": _repeat,
    "startend:end_checker": _ends,
    "startend:quotation": _quoted,
    "change_case:capital_word_frequency": _capital_words,
    "change_case:english_capital": _capitals,
    "change_case:english_lowercase": _small,
    "punctuation:no_comma": _no_comma,
}
