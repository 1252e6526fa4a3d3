"""The stop rules for a whole text at once: the plain twin of `TextFilter`, without the time box."""

from __future__ import annotations

import re

from gateway.wire.fill.stop_rules import CLOSING, LONGEST_REST, OPENING, QUOTES, StopRules


def cut(text: str, rules: StopRules, suffix: str) -> str:
    """What a client shall see of what the model wrote."""
    kept = text.split("\n")[0] if rules.single_line else _wanted_lines(text, rules, suffix.split("\n")[1:])
    return _without_rest(kept, suffix.split("\n")[0]) if rules.trim_suffix else kept


def _wanted_lines(text: str, rules: StopRules, below: list[str]) -> str:
    written_below = [line.rstrip() for line in below if line.strip()]
    next_line = written_below[0] if rules.trim_suffix and written_below else None
    lines = text.split("\n")
    written: list[str] = []
    for number, line in enumerate(lines):
        if line.strip() and number:
            indent = len(line) - len(line.lstrip(" \t"))
            less = rules.min_indent is not None and indent < rules.min_indent
            says = any(c.isalnum() for c in line)
            same = says and line.rstrip() == next_line
            third = (
                says
                and rules.repetition
                and any(
                    written[-2 * size :] == 2 * written[-size:] and line.rstrip() == written[-size]
                    for size in range(1, 5)
                    if len(written) >= 2 * size
                )
            )
            if less and indent == rules.closes_at and _closes(line) and not (same or third):
                return "\n".join(lines[: number + 1])
            if less or same or third:
                kept = lines[:number]
                while len(kept) > 1 and not kept[-1].strip():
                    kept.pop()
                return "\n".join(kept)
        if line.strip():
            written.append(line.rstrip())
    return text


def _closes(line: str) -> bool:
    return re.sub(r"^[)\]}]+[;,:]*|^(end|fi|done|esac|endif|endfunction|endfor|endwhile)$", "", line.strip()) == ""


def _without_rest(text: str, line: str) -> str:
    rest = line.strip()
    if not rest or len(line) > LONGEST_REST or not text.rstrip().endswith(rest):
        return text
    written = text.rstrip()
    closed = sum(c in CLOSING for c in rest)
    if any(c.isalnum() for c in rest):
        same = True
    elif closed:
        inner = "".join(c for c in written if c in OPENING + CLOSING).translate(str.maketrans("[{]}", "(())"))
        while "()" in inner:
            inner = inner.replace("()", "")
        same = inner.count(")") >= closed
    else:
        same = rest[0] in QUOTES and written.count(rest[0]) % 2 == 1
    return written[: len(written) - len(rest)] if same else text
