"""Decides where a completion ends although the model would continue, and which part of its end is dropped.

A filter reads the text in chunks and sends the part that no rule can still remove; the result does not depend on the
chunks. `tests/gateway/wire/fill/naive_stop_rules.py` is the plain reference version, which has the whole text.
"""

from __future__ import annotations

import re
import time
from collections import deque
from collections.abc import Callable

import msgspec

MAX_LINES = 4
"""Limit of the lines of a block whose repetition is detected."""
LONGEST_REST = 256
"""Limit of the characters after the cursor in its line; a longer rest is not searched for in a completion."""
OPENING, CLOSING, QUOTES = "([{", ")]}", "\"'`"
END_WORDS = ("end", "fi", "done", "esac", "endif", "endfunction", "endfor", "endwhile")
CLOSING_LINE = re.compile(rf"(?:[)\]}}]+[;,:]*|(?:{'|'.join(END_WORDS)})\b)")
"""The beginning of a line that closes a block."""


class StopRules(msgspec.Struct, frozen=True):
    """Rules that end a completion, in addition to the model and its stop strings."""

    single_line: bool = False
    """Whether the completion ends before its first line end."""
    min_indent: int | None = None
    """It ends before a line with less indentation, in spaces and tabs; blank lines and the first do not count."""
    closes_at: int | None = None
    """Spaces and tabs, fewer than `min_indent`, at which a line that only closes a block stays as the last line."""
    time_limit_s: float | None = None
    """The completion ends this long after its first text, once it has a line end."""
    trim_suffix: bool = True
    """Whether it ends before the suffix's next line, and drops the rest of the cursor's line from its end."""
    repetition: bool = True
    """Whether the completion ends where a block of up to four lines comes a third time in a row."""


class TextFilter:
    """One completion's text on its way to the client."""

    def __init__(self, rules: StopRules, suffix: str, clock: Callable[[], float] = time.perf_counter) -> None:
        r"""suffix: as shown to the model, with `\n` line ends. clock: seconds."""
        self._rules = rules
        self._clock = clock
        rest, _, below = suffix.partition("\n") if rules.trim_suffix else ("", "", "")
        self._rest = rest.strip() if len(rest) <= LONGEST_REST else ""
        """The text after the cursor in its own line."""
        self._next_line = first_line(below)
        """The line below it; empty if none is worth comparing."""
        self._began_s: float | None = None
        self._text = ""
        self._sent = 0
        self._line_start = 0
        """Start of the current line."""
        self._kept_end = 0
        """End of the last line before it that is not blank, or of the first: the text's end if the current line is
        dropped."""
        self._lines: deque[str] = deque(maxlen=2 * MAX_LINES)
        """The last lines that are not blank, without trailing spaces."""
        self._repeated: frozenset[str] = frozenset()
        """Lines that would begin a block for the third time."""
        self._end: int | None = None

    @property
    def stopped(self) -> bool:
        """Whether a rule has ended the text. Later output is not part of it."""
        return self._end is not None

    def feed(self, text: str) -> str:
        """Take the model's output and return the text that may be sent now."""
        if self.stopped or not text:
            return ""
        if self._began_s is None:
            self._began_s = self._clock()
        seen, self._text = len(self._text), self._text + text
        while self._end is None and (line_end := self._text.find("\n", seen)) >= 0:
            self._line(line_end)
            seen = line_end + 1
        line = self._text[self._line_start :]
        if self._end is None and self._indented_less(line) and not self._may_close(line):
            self._end = self._kept_end
        limit_s = self._rules.time_limit_s
        if self._end is None and limit_s is not None and self._line_start and self._clock() - self._began_s >= limit_s:
            self._end = len(self._text)
        return self._send(self._safe_end())

    def finish(self) -> str:
        """The rest of the text."""
        if self._end is None and self._unwanted(self._text[self._line_start :]):
            self._end = self._kept_end
        end = len(self._text) if self._end is None else self._end
        self._end = without_rest(self._text[:end], self._rest)
        return self._send(self._end)

    def _send(self, end: int) -> str:
        start, self._sent = self._sent, max(self._sent, end)
        return self._text[start : self._sent]

    def _line(self, line_end: int) -> None:
        """Handle a complete line."""
        line = self._text[self._line_start : line_end]
        if self._rules.single_line:
            self._end = line_end
        elif self._unwanted(line):
            self._end = self._kept_end
        elif self._closes(line):
            self._end = line_end
        else:
            if line.strip() or not self._line_start:
                self._kept_end = line_end
            if line.strip():
                self._lines.append(line.rstrip())
                self._repeated = frozenset(repeated(list(self._lines))) if self._rules.repetition else frozenset()
            self._line_start = line_end + 1

    def _unwanted(self, line: str) -> bool:
        if not self._line_start:
            return False
        written = line.rstrip()
        less = self._indented_less(line) and not self._closes(line)
        return bool(written) and (less or written == self._next_line or written in self._repeated)

    def _indented_less(self, line: str) -> bool:
        least = self._rules.min_indent
        return least is not None and self._line_start > 0 and bool(line.strip()) and indentation(line) < least

    def _closes(self, line: str) -> bool:
        """Whether a whole line is the block's end."""
        return self._indented_less(line) and indentation(line) == self._rules.closes_at and is_closing(line)

    def _may_close(self, line: str) -> bool:
        """Whether the current line could become a closing line."""
        return indentation(line) == self._rules.closes_at and may_become_closing(line)

    def _safe_end(self) -> int:
        """Length of the text that no later output can remove."""
        end = self._end
        if end is None:
            end = self._kept_end if self._may_be_unwanted(self._text[self._line_start :]) else len(self._text)
        return start_of_rest(self._text, end, self._rest)

    def _may_be_unwanted(self, line: str) -> bool:
        """Whether the current line could become a line that is cut off."""
        if not self._line_start:
            return False
        written = line.rstrip()
        unwanted = [one for one in (self._next_line, *self._repeated) if one]
        if not written:  # its indentation is not known yet
            return bool(unwanted) or self._rules.min_indent is not None
        return self._indented_less(line) or any(one == written or one.startswith(line) for one in unwanted)


def indentation(line: str) -> int:
    """Number of spaces and tabs at a line's beginning."""
    return len(line) - len(line.lstrip(" \t"))


def is_closing(line: str) -> bool:
    """Whether a line only closes a block."""
    return CLOSING_LINE.fullmatch(line.strip()) is not None


def may_become_closing(line: str) -> bool:
    """Whether a line with this beginning may become one that `is_closing`."""
    written = line.strip()
    return is_closing(line) or any(word.startswith(written) for word in END_WORDS)


def first_line(below: str) -> str:
    """The first line that is not blank, if it has a letter or a digit; otherwise empty: brackets recur in good code."""
    for line in below.split("\n"):
        if line.strip():
            return line.rstrip() if any(character.isalnum() for character in line) else ""
    return ""


def repeated(lines: list[str]) -> list[str]:
    """The lines that, if one comes next, begin a block for the third time in a row. lines: not blank, oldest first."""
    found = []
    for size in range(1, MAX_LINES + 1):
        first, second = lines[-2 * size : -size], lines[-size:]
        if len(first) == size and first == second and any(character.isalnum() for character in second[0]):
            found.append(second[0])
    return found


def start_of_rest(text: str, end: int, rest: str) -> int:
    """Start of the longest end of `text[:end]` that is the beginning of `rest`, or all of `rest` and spaces."""
    if not rest:
        return end
    written_end = len(text[:end].rstrip())
    if text.endswith(rest, 0, written_end):
        return written_end - len(rest)
    tail = text[max(0, end - len(rest)) : end]
    return next((end - size for size in range(len(tail), 0, -1) if rest.startswith(tail[-size:])), end)


def without_rest(text: str, rest: str) -> int:
    """The length of a text without the rest of the cursor's line, if the model repeated it.

    A rest of punctuation alone is ambiguous: `)` after `f(x)` may be another bracket. It counts as a repetition if the
    text closes more than it opens.
    """
    written = text.rstrip()
    if not rest or not written.endswith(rest):
        return len(text)
    if any(character.isalnum() for character in rest) or closes_more(written, rest):
        return len(written) - len(rest)
    return len(text)


def closes_more(text: str, rest: str) -> bool:
    """Whether a text closes at least as many brackets that it never opened as `rest` closes. If `rest` closes none:
    whether the text has an odd number of the quotes with which `rest` begins."""
    wanted = sum(rest.count(bracket) for bracket in CLOSING)
    if not wanted:
        return rest[0] in QUOTES and text.count(rest[0]) % 2 == 1
    opened = unopened = 0
    for character in text:
        if character in OPENING:
            opened += 1
        elif character in CLOSING:
            unopened, opened = (unopened, opened - 1) if opened else (unopened + 1, 0)
    return unopened >= wanted
