"""Finds where two prompts first differ, and the likely cause, from only the digests and lengths of their parts."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import NamedTuple

from gateway.prefixes.parts import DIGEST_BYTES, MAX_PARTS, Parts, System, digests_of, lengths_of

TRIMMED_RUN = 2
"""Consecutive messages that must have moved forward to show a history cut at its beginning."""


class Part(StrEnum):
    """Parts of a prompt, in the order in which they are compared."""

    SYSTEM = "system"
    TOOLS = "tools"
    MESSAGE = "message"


class Cause(StrEnum):
    """Cause for which no more of a prompt was reusable, as far as digests and lengths show."""

    FIRST = "first"
    """No similar prompt came before."""
    WHOLE = "whole"
    """Every whole block was in an earlier prompt."""
    TOO_SHORT = "too_short"
    """The prompt has no whole block, so none of it can be reused."""
    CONTINUED = "continued"
    """The conversation continues: the new text is at its end."""
    NEW_TEXT = "new_text"
    """Another question or document after the same beginning."""
    DATE = "date"
    """A date or a time of day in the system prompt was replaced."""
    TIMESTAMP = "timestamp"
    """A date or a time of day differs in every request."""
    IDENTIFIER = "identifier"
    """A number or an identifier in the system prompt was replaced."""
    VALUE = "value"
    """A part has another content of the same length."""
    SYSTEM_PROMPT_CHANGED = "system_prompt_changed"
    SYSTEM_PROMPT_VARIES = "system_prompt_varies"
    """The system prompt differs in every request."""
    TOOLS_REORDERED = "tools_reordered"
    TOOLS_CHANGED = "tools_changed"
    MESSAGES_REORDERED = "messages_reordered"
    HISTORY_TRIMMED = "history_trimmed"
    """The oldest messages were left out, and all others moved."""
    MESSAGE_CHANGED = "message_changed"
    """One message in the middle was altered, removed or inserted."""
    ELSEWHERE = "elsewhere"
    """All parts are equal: the difference is in the rendered prompt, for example in the model's template."""


HARMLESS = frozenset({Cause.FIRST, Cause.WHOLE, Cause.TOO_SHORT, Cause.CONTINUED, Cause.NEW_TEXT})
"""Causes of ordinary traffic; authors of prompts can fix every other cause."""
EVERY_REQUEST = {
    Cause.DATE: Cause.TIMESTAMP,
    Cause.SYSTEM_PROMPT_CHANGED: Cause.SYSTEM_PROMPT_VARIES,
    Cause.VALUE: Cause.IDENTIFIER,
}
"""The causes to report instead if they occur in every request."""


class Difference(NamedTuple):
    """The first difference. number: the message's, from 0 after the system prompt, or the tool's; otherwise None."""

    cause: Cause
    part: Part | None = None
    number: int | None = None


def difference(earlier: Parts, later: Parts) -> Difference:
    """The first part of the later prompt that differs from the earlier one, and the cause."""
    if earlier.system.digest != later.system.digest:
        return Difference(_of_systems(earlier.system, later.system), Part.SYSTEM)
    if earlier.tools != later.tools:
        before, after = digests_of(earlier.tools), digests_of(later.tools)
        same = sorted(before) == sorted(after)
        return Difference(
            Cause.TOOLS_REORDERED if same else Cause.TOOLS_CHANGED, Part.TOOLS, _first_other(before, after)
        )
    if earlier.messages != later.messages:
        before, after = digests_of(earlier.messages), digests_of(later.messages)
        at = _first_other(before, after)
        return Difference(_of_messages(earlier, later, before, after, at), Part.MESSAGE, at)
    # only the first messages of a longer list are compared
    many = len(later.messages) >= MAX_PARTS * DIGEST_BYTES
    return Difference(Cause.NEW_TEXT, Part.MESSAGE, MAX_PARTS) if many else Difference(Cause.ELSEWHERE)


def _of_systems(earlier: System, later: System) -> Cause:
    if earlier.digest and later.digest:
        if earlier.undated == later.undated:
            return Cause.DATE
        if earlier.unvalued == later.unvalued:
            return Cause.IDENTIFIER
        if earlier.characters == later.characters:
            return Cause.VALUE
    return Cause.SYSTEM_PROMPT_CHANGED


def _of_messages(earlier: Parts, later: Parts, before: Sequence[int], after: Sequence[int], at: int) -> Cause:
    if at in (len(before), len(after)):
        return Cause.CONTINUED
    if len(before) > 1 and sorted(before) == sorted(after):
        return Cause.MESSAGES_REORDERED
    if _trimmed(before, after, at):
        return Cause.HISTORY_TRIMMED
    rest_before, rest_after = before[at + 1 :], after[at + 1 :]
    if any(one == other for one, other in zip(rest_before, rest_after, strict=False)):
        same_length = lengths_of(earlier.lengths)[at] == lengths_of(later.lengths)[at]
        return Cause.VALUE if same_length else Cause.MESSAGE_CHANGED
    if rest_before and rest_after and (after[at] in rest_before or before[at] in rest_after):
        return Cause.MESSAGE_CHANGED
    return Cause.NEW_TEXT


def _trimmed(before: Sequence[int], after: Sequence[int], at: int) -> bool:
    """Whether the messages from `at` on were further back in the earlier prompt, up to the end of the shorter."""
    for start in range(at + 1, len(before)):
        run = min(len(before) - start, len(after) - at)
        if run >= TRIMMED_RUN and before[start : start + run] == after[at : at + run]:
            return True
    return False


def _first_other(before: Sequence[int], after: Sequence[int]) -> int:
    pairs = enumerate(zip(before, after, strict=False))
    return next((at for at, (one, other) in pairs if one != other), min(len(before), len(after)))
