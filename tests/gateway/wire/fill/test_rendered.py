"""Prompts that clients lay out themselves, as their templates write them."""

from __future__ import annotations

import hypothesis.strategies as st
import pytest
from hypothesis import given

from gateway.wire.fill.rendered import parse
from gateway.wire.gap import Snippet

RENDERED = {
    "qwen": "<|fim_prefix|>{p}<|fim_suffix|>{s}<|fim_middle|>",
    "qwen, suffix first": "<|fim_suffix|>{s}<|fim_prefix|>{p}<|fim_middle|>",
    "starcoder": "<fim_prefix>{p}<fim_suffix>{s}<fim_middle>",
    "santacoder": "<fim-prefix>{p}<fim-suffix>{s}<fim-middle>",
    "deepseek": "<｜fim▁begin｜>{p}<｜fim▁hole｜>{s}<｜fim▁end｜>",
    "deepseek, with its beginning": "<｜begin▁of▁sentence｜><｜fim▁begin｜>{p}<｜fim▁hole｜>{s}<｜fim▁end｜>",
    "codellama": "<PRE> {p} <SUF>{s} <MID>",
    "glm": "<|code_prefix|>{p}<|code_suffix|>{s}<|code_middle|>",
    "codestral": "[SUFFIX]{s}[PREFIX]{p}",
}
SIDES = st.text("ab\n (<|", max_size=20)


@pytest.mark.parametrize("template", RENDERED.values(), ids=RENDERED)
@given(SIDES, SIDES)
def test_each_familys_prompt_is_taken_apart(template: str, prefix: str, suffix: str) -> None:
    assert parse(template.format(p=prefix, s=suffix)) == (prefix, suffix, ())


def test_what_stands_behind_the_middle_is_the_end_of_the_prefix() -> None:
    assert parse("<|fim_prefix|>a\n<|fim_suffix|>c<|fim_middle|>b") == ("a\nb", "c", ())
    assert parse("<fim_prefix><fim_suffix>c<fim_middle>ab") == ("ab", "c", ())


def test_other_files_are_kept_as_they_were_written() -> None:
    repository = "<|repo_name|>r\n<|file_sep|>a.py\nx = 1\n<|file_sep|>b.py\n"
    files = (Snippet("", "a.py\nx = 1\n"), Snippet("", "b.py\n"))
    assert parse(repository + "<|fim_prefix|>p<|fim_suffix|>s<|fim_middle|>") == ("p", "s", files)
    starcoder = "<file_sep>one<file_sep><fim_prefix>p<fim_suffix>s<fim_middle>"
    assert parse(starcoder) == ("p", "s", (Snippet("", "one"), Snippet("", "")))


@pytest.mark.parametrize(
    "prompt",
    [
        "def f():",
        "",
        "<|fim_prefix|>a<|fim_suffix|>b",
        "<|fim_prefix|>a<|fim_middle|>b<|fim_suffix|>c",
        'MARK = "<|fim_prefix|>a<|fim_suffix|>b<|fim_middle|>"',
        "<|fim_prefix|>a<|fim_suffix|>b<|fim_suffix|>c<|fim_middle|>",
        "<|fim_prefix|>a<fim_suffix>b<|fim_middle|>",
        "[PREFIX]a[SUFFIX]b",
        "+++++ a.py\n[SUFFIX]b[PREFIX]a",
    ],
)
def test_all_else_is_text(prompt: str) -> None:
    assert parse(prompt) is None
