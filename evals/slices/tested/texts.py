"""Texts taken apart and put together: words, lines, patterns and differences."""

from __future__ import annotations


def words_of(name: str) -> list[str]:
    """The words of a name in camel case, in snake case or with hyphens, in small letters."""
    words: list[str] = []
    word = ""
    for character in name:
        if character in "_- ":
            if word:
                words.append(word)
            word = ""
        elif character.isupper() and word and not word[-1].isupper():
            words.append(word)
            word = character
        else:
            word += character
    if word:
        words.append(word)
    return [each.lower() for each in words]


def camel_case(name: str) -> str:
    """The name in camel case."""
    first, *others = words_of(name) or [""]
    return first + "".join(word.capitalize() for word in others)


def wrapped(text: str, width: int) -> list[str]:
    """Lines of at most so many characters; a longer word has a line of its own."""
    lines: list[str] = []
    for word in text.split():
        if lines and len(lines[-1]) + 1 + len(word) <= width:
            lines[-1] += f" {word}"
        else:
            lines.append(word)
    return lines


def dedented(text: str) -> str:
    """The text without the indentation that all its lines share; blank lines do not count."""
    lines = text.split("\n")
    indents = [len(line) - len(line.lstrip()) for line in lines if line.strip()]
    shared = min(indents, default=0)
    return "\n".join(line[shared:] if line.strip() else "" for line in lines)


def matches(pattern: str, text: str) -> bool:
    """Whether a text is of a pattern in which `*` stands for any text and `?` for any character."""
    at, place, star, marked = 0, 0, -1, 0
    while place < len(text):
        if at < len(pattern) and pattern[at] in ("?", text[place]):
            at += 1
            place += 1
        elif at < len(pattern) and pattern[at] == "*":
            star, marked = at, place
            at += 1
        elif star >= 0:
            at = star + 1
            marked += 1
            place = marked
        else:
            return False
    return all(character == "*" for character in pattern[at:])


def runs(text: str) -> list[tuple[str, int]]:
    """Each character with the number of times that it follows itself."""
    found: list[tuple[str, int]] = []
    for character in text:
        if found and found[-1][0] == character:
            found[-1] = (character, found[-1][1] + 1)
        else:
            found.append((character, 1))
    return found


def common_prefix(texts: list[str]) -> str:
    """The longest text that all begin with."""
    if not texts:
        return ""
    shortest = min(texts, key=len)
    for at, character in enumerate(shortest):
        if any(text[at] != character for text in texts):
            return shortest[:at]
    return shortest


def longest_common(one: str, other: str) -> str:
    """The longest text in both, the first of several."""
    best, ends = "", [0] * (len(other) + 1)
    for at, character in enumerate(one, 1):
        previous = 0
        for place, theirs in enumerate(other, 1):
            kept = ends[place]
            ends[place] = previous + 1 if character == theirs else 0
            if ends[place] > len(best):
                best = one[at - ends[place] : at]
            previous = kept
    return best
