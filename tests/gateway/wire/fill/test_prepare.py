"""Gaps become prompts that fit, laid out as the shipped code model learnt them or as others did."""

from __future__ import annotations

import itertools
import json
import shutil
import threading
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import msgspec
import pytest
from hypothesis import given

from contracts.errors import ContextTooLong, SpecialToken, UnsupportedField
from contracts.generation import TextPrompt
from engines.drivers import registry as drivers
from engines.tokenizer.fill import FAMILIES, FillTemplate
from engines.tokenizer.tokenizer import Tokenizer
from gateway.wire.fill import layout
from gateway.wire.fill.layout import Ends, ends_of
from gateway.wire.fill.prepare import FILL_DEFAULT_MAX_TOKENS, prepare_fill
from gateway.wire.fill.request import Filled, FillRequest
from gateway.wire.fill.stop_rules import StopRules
from gateway.wire.gap import MAX_COMPARED, Snippet
from gateway.wire.prepared import Prepared, Target
from tests.examples import examples
from tests.gateway.wire.openai.preparing import CALLER, MODELS, complete, prompts_of, target
from tests.psm_model import write_psm_model

CODE = Tokenizer.load(MODELS / "slipstream-code")
FILE = "".join(f"def function_{number}(value):\n    return value + {number}\n\n\n" for number in range(400))


async def fill(where: Target, prefix: str, suffix: str = "", **fields: Any) -> Prepared:
    asked = FillRequest(model="m", prefix=prefix, suffix=suffix, **fields)
    return await prepare_fill(asked, "req_1", CALLER, "salt", where)


def ids_of(prepared: Prepared) -> tuple[int, ...]:
    assert isinstance(prepared.generation.prompt, TextPrompt)
    [ids] = prepared.generation.prompt.prompts
    assert not isinstance(ids, str)
    return ids


def prompt_of(prepared: Prepared) -> TextPrompt:
    assert isinstance(prepared.generation.prompt, TextPrompt)
    return prepared.generation.prompt


def filled_of(prepared: Prepared) -> Filled:
    assert isinstance(prepared.details, Filled)
    return prepared.details


def text_of(ids: tuple[int, ...]) -> str:
    return "".join(CODE.token_text(id_) for id_ in ids)


async def test_a_file_that_fits_is_laid_out_whole() -> None:
    prepared = await fill(target(CODE, context_tokens=200), "x = 1\ny", "\nz = 3\n")

    assert ids_of(prepared) == tuple(CODE.fill_ids("x = 1\ny", "\nz = 3\n"))
    assert prepared.generation.prompt == TextPrompt((ids_of(prepared),), filled_gap=True)
    assert prepared.generation.sampling.max_tokens == 20, "the model's own default is lower"
    assert filled_of(prepared) == Filled(rules=filled_of(prepared).rules, suffix="\nz = 3\n")


async def test_a_file_that_does_not_fit_is_windowed_around_the_cursor() -> None:
    cursor = FILE.index("function_200")
    where = target(CODE, context_tokens=1_024, default_max_tokens=500)
    prepared = await fill(where, FILE[:cursor], FILE[cursor:])

    ids = ids_of(prepared)
    assert len(ids) + FILL_DEFAULT_MAX_TOKENS <= 1_024
    assert len(ids) >= 800
    assert prepared.generation.sampling.max_tokens == FILL_DEFAULT_MAX_TOKENS
    assert filled_of(prepared).truncated
    suffix, _, rest = text_of(ids).removeprefix("<|fim_suffix|>").partition("<|fim_prefix|>")
    assert FILE[cursor:].startswith(suffix)
    assert filled_of(prepared).suffix == suffix
    assert FILE[:cursor].endswith(rest.replace("<|fim_middle|>", ""))


async def test_typing_changes_only_the_end_of_the_windowed_prompt() -> None:
    cursor = FILE.index("    return value + 200")
    where = target(CODE, context_tokens=1_024)
    line = "    return value * 3"
    prompts = [ids_of(await fill(where, FILE[:cursor] + line[:typed], "\n" + FILE[cursor:])) for typed in range(21)]

    for before, after in itertools.pairwise(prompts):
        same = itertools.takewhile(lambda both: both[0] == both[1], zip(before, after, strict=False))
        assert len(after) - sum(1 for _ in same) <= 16


SIDES = st.lists(
    st.sampled_from(["x", "    ", "\n", "é", "def f(a):", "<|fim_middle|>", " = ", "🙂", "0"]), max_size=400
)


@given(SIDES.map("".join), SIDES.map("".join), st.integers(40, 300), st.integers(1, 30))
@examples(nightly=150)
async def test_whatever_the_file_the_prompt_and_its_answer_fit(
    prefix: str, suffix: str, context: int, max_tokens: int
) -> None:
    snippets = (Snippet("a.py", suffix[:50]), Snippet("b.py", prefix))
    prepared = await fill(
        target(CODE, context_tokens=context), prefix, suffix, max_tokens=max_tokens, snippets=snippets
    )

    ids = ids_of(prepared)
    assert len(ids) + max_tokens <= context or max_tokens > context // 2
    assert prepared.prompt_tokens == prepared.prompt_tokens_bound == len(ids)
    assert prepared.generation.sampling.max_tokens == min(max_tokens, context - len(ids))
    assert sum(id_ in CODE.control_ids for id_ in ids) == 3, "only the template's own"


async def test_a_limit_that_fills_the_context_is_lowered_and_the_prompt_has_half() -> None:
    where = target(CODE, context_tokens=100)
    short, long = await fill(where, "x", max_tokens=5_000), await fill(where, FILE, max_tokens=5_000)

    assert short.generation.sampling.max_tokens == 100 - len(ids_of(short)) > 90
    assert long.generation.sampling.max_tokens == 100 - len(ids_of(long)) >= 50
    assert len(ids_of(long)) >= 30
    with pytest.raises(ContextTooLong):
        await fill(target(CODE, context_tokens=100, fim={"window": False}), "x", max_tokens=97)
    with pytest.raises(ContextTooLong):
        await fill(target(CODE, context_tokens=8), "x", max_tokens=5)


async def test_a_completion_ends_at_its_familys_marks_too() -> None:
    marks = ("<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>", "<|endoftext|>")
    prepared = await fill(target(CODE), "x", stop=("!",))
    assert prepared.generation.sampling.stop == ("!",)
    assert [CODE.token_text(id_) for id_ in prepared.generation.sampling.stop_ids] == list(marks)

    as_text = (await fill(target(CODE, "openai"), "x", stop=("!",))).generation.sampling
    assert as_text.stop_ids == ()
    assert as_text.stop == ("!", *marks)


def test_a_family_that_marks_files_by_a_line_ends_there() -> None:
    codestral = FillTemplate(
        1, 2, (), "spm", end_ids=(1, 2), end_texts=("[PREFIX]", "[SUFFIX]"), end_lines=("\n+++++ ",)
    )
    for driver, ends in (
        ("sglang", Ends((1, 2), ("\n+++++ ",))),
        ("openai", Ends((), ("[PREFIX]", "[SUFFIX]", "\n+++++ "))),
    ):
        assert ends_of(codestral, drivers.get(driver).capabilities) == ends


async def test_without_windows_what_does_not_fit_is_refused() -> None:
    where = target(CODE, context_tokens=100, fim={"window": False})
    with pytest.raises(ContextTooLong):
        await fill(where, FILE)
    with pytest.raises(ContextTooLong):
        await fill(where, "x", "y " * 200)
    assert ids_of(await fill(where, "x = ", "\n")) == tuple(CODE.fill_ids("x = ", "\n"))


async def test_a_model_without_marks_says_so() -> None:
    chat = Tokenizer.load(MODELS / "slipstream-chat")
    with pytest.raises(UnsupportedField):
        await fill(target(chat), "x")


async def test_windows_files_are_shown_with_plain_line_ends() -> None:
    prepared = await fill(target(CODE), "x = 1\r\ny", "\r\n", stop=("\r\n\r\n",))

    assert ids_of(prepared) == tuple(CODE.fill_ids("x = 1\ny", "\n"))
    assert filled_of(prepared).newline == "\r\n"
    assert prepared.generation.sampling.stop == ("\n\n",)


@pytest.mark.parametrize(
    ("lines", "rules"),
    [("auto", StopRules(min_indent=4)), ("single", StopRules(single_line=True)), ("free", StopRules())],
)
async def test_the_model_says_whether_the_cursors_place_counts(lines: str, rules: StopRules) -> None:
    prepared = await fill(target(CODE, fim={"lines": lines}), "def f():\r\n    ", "\r\n", path="a.py")
    assert filled_of(prepared).rules == rules


BY_CLIENT = {"min_confidence": 0.4, "min_confidence_by_client": {"zed": 0.3, "tabby-agent": 0.0}}
JUDGING = {"min_confidence": "auto"}
"""By the weights."""


@pytest.mark.parametrize(
    ("fim", "client", "fields", "least"),
    [
        ({}, "other", {}, 0.0),
        ({}, "other", {"min_confidence": 0.5}, 0.5),
        ({}, "other", {"min_confidence": 0.5, "warm_up": True}, 0.0),
        (BY_CLIENT, "other", {}, 0.4),
        (BY_CLIENT, "zed", {}, 0.3),
        (BY_CLIENT, "tabby-agent", {}, 0.0),
        (BY_CLIENT, "zed", {"min_confidence": 0.7}, 0.7),
        (BY_CLIENT, "zed", {"min_confidence": 0.0}, 0.0),
        (BY_CLIENT, "zed", {"warm_up": True}, 0.0),
        (JUDGING, "other", {}, 0.75),
        (JUDGING, "other", {"min_confidence": 0.6}, 0.6),
        (JUDGING, "other", {"min_confidence": 0.0}, 0.0),
        ({**JUDGING, "min_confidence_by_client": {"other": 0.1}}, "other", {}, 0.1),
    ],
)
async def test_the_least_confidence_is_the_requests_or_the_clients_or_the_models_or_the_weights(
    fim: dict[str, Any], client: Any, fields: dict[str, Any], least: float
) -> None:
    """Probabilities are requested only to judge by them."""
    where = msgspec.structs.replace(target(CODE, fim=fim), client=client)
    prepared = await fill(where, "x", **fields)
    assert (filled_of(prepared).min_confidence, prepared.generation.sampling.logprobs) == (least, 1 if least else None)


async def test_weights_say_how_sure_a_completion_must_be_or_nothing(tmp_path: Path) -> None:
    folder = shutil.copytree(MODELS / "slipstream-code", tmp_path / "code")
    config = folder / "tokenizer_config.json"
    config.write_text(json.dumps({**json.loads(config.read_text()), "fim_min_confidence": 0.45}))
    psm = Tokenizer.load(write_psm_model(tmp_path / "psm"))
    for tokenizer, least in ((Tokenizer.load(folder), 0.45), (psm, 0.0), (None, 0.0)):
        assert filled_of(await fill(target(tokenizer, fim=JUDGING), "x")).min_confidence == least


async def test_a_warm_up_generates_one_token() -> None:
    prepared = await fill(target(CODE), "x", warm_up=True, max_tokens=50)

    assert prepared.generation.sampling.max_tokens == 1
    assert filled_of(prepared).warm_up


SNIPPETS = (Snippet("lib/a.py", "def a():\n    pass\n"),)
COMMENTS = "# Path: lib/a.py\n# def a():\n#     pass\n"


async def test_snippets_are_comments_for_a_model_that_learnt_no_files_and_stand_before_its_suffix() -> None:
    for suffix in ("", "\n", "\nb = 1\n"):
        prepared = await fill(target(CODE, context_tokens=400), "a", suffix, snippets=SNIPPETS, language="python")
        assert ids_of(prepared) == (*CODE.encode(COMMENTS), *CODE.fill_ids("a", suffix))


async def test_comments_stand_in_the_prefix_where_that_comes_first_or_engines_take_text(tmp_path: Path) -> None:
    psm = Tokenizer.load(write_psm_model(tmp_path / "psm"))
    asked: dict[str, Any] = {"snippets": SNIPPETS, "language": "python"}
    assert ids_of(await fill(target(psm, context_tokens=400), "a", "b", **asked)) == tuple(
        psm.fill_ids(COMMENTS + "a", "b")
    )
    as_text = await fill(target(CODE, "openai", context_tokens=400), "a", "b", **asked)
    assert as_text.generation.prompt == TextPrompt((COMMENTS + "a",), "b")


TYPED = ("x = 1\ny = off", "\nz = 3\n")


@pytest.mark.parametrize("order", ["psm", "spm"])
@pytest.mark.parametrize("typed_line", ["auto", "before_middle", "after_middle"])
async def test_the_model_says_where_the_half_typed_line_stands(tmp_path: Path, order: str, typed_line: str) -> None:
    """The shipped folder says `after_middle`; the other, as others publish theirs, nothing."""
    tokenizer = CODE
    if order == "psm":
        folder = write_psm_model(tmp_path / "psm")
        (folder / "tokenizer_config.json").write_bytes(msgspec.json.encode({"eos_token": "<|endoftext|>"}))
        tokenizer = Tokenizer.load(folder)
    where = target(tokenizer, "sglang", context_tokens=400, fim={"typed_line": typed_line})
    ids = list(ids_of(await fill(where, *TYPED)))

    after = typed_line == "after_middle" or (typed_line == "auto" and order == "spm")
    above, line = ("x = 1\n", "y = off") if after else ("x = 1\ny = off", "")
    before, behind = [1, *tokenizer.encode(above)], [2, *tokenizer.encode(TYPED[1])]
    sides = before + behind if order == "psm" else behind + before
    assert ids == [*sides, 3, *tokenizer.encode(line)]


async def test_snippets_take_a_quarter_at_most_and_the_first_stay() -> None:
    where = target(CODE, context_tokens=400)
    small, large = Snippet("a.py", "a = 1\n"), Snippet("b.py", "b = 1\n" * 100)
    one = await fill(where, "x", "", snippets=(small,))
    assert ids_of(await fill(where, "x", "", snippets=(small, large, small))) == ids_of(one)


@pytest.mark.parametrize(("counted", "text", "snippets"), [
    ("window", "\n" * 30_000, 0), ("within", "", 20), ("within", "x = 1\n" * 2_000, 1)
])  # fmt: skip
async def test_a_gap_whose_texts_are_counted_is_laid_out_in_a_thread(
    monkeypatch: pytest.MonkeyPatch, counted: str, text: str, snippets: int
) -> None:
    """Counts are not cached: on the event loop, the window of a file of empty lines took 19 ms."""
    count, threads = getattr(layout, counted), set[threading.Thread]()

    def watched(*arguments: Any) -> Any:
        threads.add(threading.current_thread())
        return count(*arguments)

    monkeypatch.setattr(layout, counted, watched)
    where = target(CODE, context_tokens=8_000)
    for _ in range(2):
        await fill(where, text, text, snippets=(Snippet("a.py", "a = 1\n" * 100),) * snippets)
    assert threads
    assert threading.current_thread() not in threads
    assert where.tokenizer is not None
    where.tokenizer.close()


async def test_an_engine_that_takes_text_gets_the_window_as_text() -> None:
    cursor = FILE.index("function_200")
    prepared = await fill(target(CODE, "openai", context_tokens=1_024), FILE[:cursor], FILE[cursor:])

    prompt = prepared.generation.prompt
    assert isinstance(prompt, TextPrompt)
    assert isinstance(prompt.prompts[0], str)
    assert prompt.suffix is not None
    assert FILE[:cursor].endswith(prompt.prompts[0])
    assert FILE[cursor:].startswith(prompt.suffix)
    assert len(CODE.fill_ids(prompt.prompts[0], prompt.suffix)) <= 1_024 - 20
    with pytest.raises(SpecialToken):
        await fill(target(CODE, "openai"), "<|fim_middle|>")


async def test_without_a_tokenizer_the_window_is_an_estimate() -> None:
    cursor = FILE.index("function_200")
    prepared = await fill(target(None, "openai", context_tokens=1_024), FILE[:cursor], FILE[cursor:])

    assert not prepared.exact
    assert 500 < prepared.prompt_tokens <= 1_024 - 20


def test_repositories_are_laid_out_as_qwen_learnt_them(tmp_path: Path) -> None:
    template = FillTemplate(1, 2, (3,), "psm", repository_ids=(8,), file_ids=(9,))

    def encode(text: str) -> list[int]:
        return [1_000 + ord(character) for character in text]

    files = template.repository(encode) + template.file("a", "b", encode)
    assert files == [8, *encode("repository\n"), 9, *encode("a\nb")]
    assert template.lay_out([7], [20], [21], files=files) == [7, *files, 1, 20, 2, 21, 3]


def test_each_family_says_how_it_learnt_files_once() -> None:
    assert all(not (family.files and family.file_line) for family in FAMILIES)
    assert msgspec.to_builtins(FAMILIES[-1])["file_line"].format(path="a.py") == "+++++ a.py\n"


@pytest.mark.parametrize(
    ("language", "path", "noted"),
    [("Python", "x.rs", "python"), ("", "src/x.rs", "rust"), ("whatever a user writes", "", "other"), ("", "", None)],
)
async def test_the_language_is_noted_by_a_known_name_alone(language: str, path: str, noted: str | None) -> None:
    prepared = await fill(target(CODE, context_tokens=200), "x", language=language, path=path)

    assert prepared.language == noted


HEALING: dict[str, Any] = {"context_tokens": 200, "fim": {"healing": True}}


async def test_a_half_typed_word_is_left_to_the_output_where_the_model_says_so() -> None:
    healed = await fill(target(CODE, **HEALING), "x = 1\ny = offse", "\nz = 3\n")

    assert ids_of(healed) == tuple(CODE.fill_ids("x = 1\ny =", "\nz = 3\n"))
    assert prompt_of(healed).begins_with == " offse"
    assert filled_of(healed).opening == " offse"
    short = await fill(target(CODE, **HEALING), "y = offse", "", max_tokens=3)
    assert prompt_of(short).begins_with == "", "the answer would be nothing but what is typed"
    wordless = await fill(target(CODE, **HEALING), "# 这个函数把两个数字相加并且返回它们的总和如果输入", "")
    assert prompt_of(wordless).begins_with == "", "without blanks a sentence is one piece, of many tokens"
    assert ids_of(await fill(target(CODE, **HEALING), "x = 1\n", "")) == tuple(CODE.fill_ids("x = 1\n", ""))


@pytest.mark.parametrize("driver", ["sglang", "vllm"])
async def test_only_the_last_tokens_are_left_to_an_engine_that_is_forced_by_a_grammar(driver: str) -> None:
    where = target(CODE, driver, **HEALING)
    healed = await fill(where, "return self.getUserNam", "\nz = 3\n")
    assert prompt_of(healed).begins_with == filled_of(healed).opening == "Nam"
    assert ids_of(healed) == tuple(CODE.fill_ids("return self.getUser", "\nz = 3\n"))
    assert prompt_of(await fill(where, "x = 12", "")).begins_with == "", "no token continues a digit"
    markup = await fill(where, "<", "")
    assert prompt_of(markup).begins_with == "", "a grammar of characters would let a control token write it"


@pytest.mark.parametrize(
    ("stop", "healed"), [(("Name",), False), (("a",), False), (("Nam",), False), (("m(",), False), (("x", "\n"), True)]
)
async def test_an_opening_in_which_an_engine_may_find_a_stop_string_stays_in_the_prompt(
    stop: tuple[str, ...], healed: bool
) -> None:
    forced = await fill(target(CODE, "sglang", **HEALING), "self.getUserNam", "", stop=stop)
    assert prompt_of(forced).begins_with == ("Nam" if healed else "")
    assert prompt_of(await fill(target(CODE, **HEALING), "self.getUserNam", "", stop=stop)).begins_with != ""


@pytest.mark.parametrize(("end", "healed"), [("a", True), ("\t", True), ("é", True), ("\0", False), ("\x1b", False)])
async def test_a_character_that_a_grammar_may_fail_on_stays_in_the_prompt(
    end: str, healed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Larger vocabularies have tokens of several NULs."""
    monkeypatch.setattr(Tokenizer, "healed_tokens", lambda _, prefix: len(prefix) - 1)
    for driver in ("sglang", "vllm"):
        asked = await fill(target(CODE, driver, **HEALING), f"x{end}", "")
        assert prompt_of(asked).begins_with == (end if healed else "")


@pytest.mark.parametrize("fields", [{"stop": "Name"}, {"top_k": 3}])
async def test_openais_endpoint_heals_by_the_same_rules(fields: dict[str, Any]) -> None:
    where = target(CODE, "sglang", **HEALING)
    asked = {"prompt": "self.getUserNam", "suffix": "\n", "n": 2}
    assert prompts_of(await complete(where, **asked)).begins_with == "Nam"
    assert prompts_of(await complete(where, **asked, **fields)).begins_with == ""


@pytest.mark.parametrize("where", [target(CODE, context_tokens=200), target(None, "openai", **HEALING)])
async def test_nothing_is_healed_unasked_or_where_engines_cannot(where: Target) -> None:
    plain = await fill(where, "y = offse", "")
    assert prompt_of(plain).begins_with == ""
    if where.tokenizer is not None:
        assert ids_of(plain) == tuple(CODE.fill_ids("y = offse", ""))


@examples(nightly=40)
@given(st.text(st.sampled_from("ab _.(\n\tß"), max_size=300), st.integers(30, 200))
async def test_a_healed_prompt_and_what_the_output_begins_with_are_the_prefix(prefix: str, context: int) -> None:
    where = target(CODE, context_tokens=context, fim={"healing": True})
    healed = await fill(where, prefix, "\nend\n", max_tokens=8)
    begins_with = prompt_of(healed).begins_with

    kept = prefix.removesuffix(begins_with)
    assert kept + begins_with == prefix
    plain = await fill(target(CODE, context_tokens=context), kept, "\nend\n", max_tokens=8)
    assert ids_of(healed) == ids_of(plain)


async def test_a_gap_that_is_too_large_is_not_kept_with_its_request() -> None:
    assert (await fill(target(CODE), "x = 1\n", "")).gap is not None
    assert (await fill(target(CODE), "x = 1\n", "y = 2\n" * MAX_COMPARED)).gap is None
