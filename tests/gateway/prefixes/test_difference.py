"""Every cause made and named, in a tenant's traffic as the gateway sees it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from contracts.prefix import BLOCK_TOKENS
from gateway.prefixes.difference import HARMLESS, Cause
from gateway.prefixes.observer import PrefixObserver, PrefixSample
from gateway.prefixes.template import PrefixDigests
from tests.gateway.prefixes.prompts import asked, message, tool

RULES = "Answer from the handbook alone, in whole sentences, and say where it is written. " * 6
TOOLS = [tool("search"), tool("open"), tool("close")]
Ask = tuple[Sequence[dict[str, Any]], Sequence[dict[str, Any]]]


def system(text: str) -> dict[str, Any]:
    return message("system", text)


def user(text: str) -> dict[str, Any]:
    return message("user", text)


def assistant(text: str) -> dict[str, Any]:
    return message("assistant", text)


def last_of(*asks: Ask) -> PrefixSample:
    observer = PrefixObserver(PrefixDigests(b"secret"))
    return [observer.observe(asked(messages, tools)) for messages, tools in asks][-1]


def dated(date: str, question: str) -> Ask:
    return [system(f"You are a clerk. Today is {date}. {RULES}"), user(question)], ()


def with_id(number: str) -> Ask:
    return [system(f"You are a clerk for session {number}. {RULES}"), user("hello")], ()


HISTORY = [part for n in range(6) for part in (user(f"question {n} " * 12), assistant(f"answer {n} " * 12))]
MADE: dict[str, tuple[list[Ask], Cause, str | None, int | None]] = {
    "nothing before": ([dated("2026-11-22", "hi")], Cause.FIRST, None, None),
    "asked again": ([dated("2026-11-22", "hi")] * 2, Cause.WHOLE, None, None),
    "another question": (
        [dated("2026-11-22", "why " * 30), dated("2026-11-22", "how " * 30)], Cause.NEW_TEXT, "message", 0,
    ),
    "a conversation goes on": (
        [([system(RULES), *HISTORY[:3]], ()), ([system(RULES), *HISTORY[:5]], ())], Cause.CONTINUED, "message", 3,
    ),
    "midnight": ([dated("2026-11-22", "hi"), dated("2026-11-23", "hi")], Cause.DATE, "system", None),
    "midnight in words": (
        [dated("Sunday, November 22, 2026", "hi"), dated("Monday, November 23, 2026", "ho")],
        Cause.DATE, "system", None,
    ),
    "a clock": (
        [dated(f"2026-11-22 10:31:{n}", "hi") for n in range(10, 16)], Cause.TIMESTAMP, "system", None,
    ),
    "an id in each": ([with_id(f"a{n}7f") for n in range(6)], Cause.IDENTIFIER, "system", None),
    "a name of the same length": (
        [([system(f"You are a clerk, Anna. {RULES}")], ()), ([system(f"You are a clerk, Otto. {RULES}")], ())],
        Cause.VALUE, "system", None,
    ),
    "another sentence": (
        [([system(f"You are a clerk. {RULES}")] * 1, TOOLS), ([system(f"You are a clerk. Be kind. {RULES}")], TOOLS)],
        Cause.SYSTEM_PROMPT_CHANGED, "system", None,
    ),
    "another name in each": (
        [([system(f"You are the clerk of {name}. {RULES}")], TOOLS) for name in ("Ann", "Robert", "Li", "Otto", "Eve")],
        Cause.SYSTEM_PROMPT_VARIES, "system", None,
    ),
    "tools shuffled": (
        [([system(RULES)], TOOLS), ([system(RULES)], [TOOLS[0], TOOLS[2], TOOLS[1]])],
        Cause.TOOLS_REORDERED, "tools", 1,
    ),
    "a tool added": (
        [([system(RULES)], TOOLS), ([system(RULES)], [tool("ask"), *TOOLS])], Cause.TOOLS_CHANGED, "tools", 0,
    ),
    "a tool described anew": (
        [([system(RULES)], TOOLS), ([system(RULES)], [TOOLS[0], tool("open", "opens it"), TOOLS[2]])],
        Cause.TOOLS_CHANGED, "tools", 1,
    ),
    "examples shuffled": (
        [([system(RULES), *HISTORY[:6]], ()), ([system(RULES), *HISTORY[2:4], *HISTORY[:2], *HISTORY[4:6]], ())],
        Cause.MESSAGES_REORDERED, "message", 0,
    ),
    "the oldest left out": (
        [([system(RULES), *HISTORY[:9]], ()), ([system(RULES), *HISTORY[2:11]], ())],
        Cause.HISTORY_TRIMMED, "message", 0,
    ),
    "a message altered": (
        [([system(RULES), *HISTORY[:5]], ()), ([system(RULES), user("another question " * 10), *HISTORY[1:5]], ())],
        Cause.MESSAGE_CHANGED, "message", 0,
    ),
    "a message altered, as long as before": (
        [([system(RULES), *HISTORY[:5]], ()), ([system(RULES), user("question 9 " * 12), *HISTORY[1:5]], ())],
        Cause.VALUE, "message", 0,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", MADE)
def test_every_cause_is_named(name: str) -> None:
    asks, cause, part, number = MADE[name]
    sample = last_of(*asks)
    assert (sample.cause, sample.part, sample.part_number) == (cause.value, part, number)


def test_all_causes_but_two_are_made_here() -> None:
    """`elsewhere` is what a template renders of its own, `too_short` has no difference: the two tests below."""
    assert {made[1] for made in MADE.values()} == set(Cause) - {Cause.ELSEWHERE, Cause.TOO_SHORT}


def test_a_prompt_without_a_whole_block_is_too_short_whatever_it_says() -> None:
    observer = PrefixObserver(PrefixDigests(b"secret"))
    samples = [observer.observe(asked([user("hi")])) for _ in range(8)] + [observer.observe(asked([user("you")]))]
    assert samples[0].prompt_tokens < BLOCK_TOKENS
    for each in samples:
        assert (each.cause, each.part, each.differing_token) == (Cause.TOO_SHORT.value, None, None)
        assert (each.reusable_tokens, each.blocks) == (0, [])
    assert Cause.TOO_SHORT in HARMLESS, "nobody is told to mend it, and no text of it is kept"


def test_what_a_template_renders_itself_is_found_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    import tests.gateway.prefixes.prompts as prompts

    observer, render = PrefixObserver(PrefixDigests(b"secret")), prompts.ids_of
    for day in b"12":
        monkeypatch.setattr(prompts, "ids_of", lambda prompt, day=day: [day] * 64 + render(prompt))
        sample = observer.observe(asked([system(RULES), user("hi")]))
    assert (sample.cause, sample.part, sample.differing_token) == (Cause.ELSEWHERE.value, None, 0)


@pytest.mark.parametrize("change", [dated("2026-11-23", "hi"), dated("November 23, 2026", "hi")])
def test_a_date_in_the_first_line_makes_no_other_template(change: Ask) -> None:
    before = last_of(dated("2026-11-22", "hi"))
    assert last_of(dated("2026-11-22", "hi"), change).template == before.template


@pytest.mark.parametrize(
    "other",
    [
        lambda: asked([system("You write poems. " + RULES), user("hi")]),
        lambda: asked([user("hi")]),
        lambda: asked([system("You are a clerk. " + RULES), user("hi")], TOOLS),
        lambda: asked([system("You are a clerk. " + RULES), user("hi")], model="other"),
    ],
)
def test_another_application_is_another_template(other: Callable[[], Any]) -> None:
    observer = PrefixObserver(PrefixDigests(b"secret"))
    mine = observer.observe(asked([system("You are a clerk. " + RULES), user("hi")]))
    assert observer.observe(other()).template != mine.template


def test_two_applications_in_turn_break_nothing() -> None:
    observer = PrefixObserver(PrefixDigests(b"secret"))
    causes = []
    for n in range(20):
        rules = f"You are a clerk. {RULES}" if n % 2 else f"You are a clerk. Be kind. {RULES}"
        causes.append(Cause(observer.observe(asked([system(rules), user(f"question {n} " * 20)])).cause))
    assert set(causes[2:]) <= HARMLESS
