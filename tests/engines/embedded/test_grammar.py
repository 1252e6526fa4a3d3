"""Guided output: what comes out has the form that was asked for, whatever happens to the sequence meanwhile."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from llguidance import LLMatcher, LLParserLimits

from contracts.errors import InvalidField
from engines.embedded.config import GrammarConfig
from engines.embedded.grammar.compiler import GrammarCompiler
from engines.embedded.grammar.guide import Guide
from engines.embedded.grammar.mask import mask_
from engines.embedded.grammar.spec import (
    ebnf_spec,
    lark_spec,
    object_spec,
    regex_spec,
    schema_spec,
)
from engines.embedded.output import Delta
from engines.embedded.request import Request
from engines.tokenizer.tokenizer import Tokenizer
from speculative.config import SpeculationConfig
from tests.engines.embedded.tiny import SHIPPED, drain, finish, make_engine, request, text

CHAT = SHIPPED / "slipstream-chat"
CONFIG = GrammarConfig()
SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 12},
        "ages": {"type": "array", "items": {"type": "integer", "minimum": 0, "maximum": 99}, "maxItems": 3},
        "kind": {"enum": ["cat", "dog"]},
    },
    "required": ["name", "ages", "kind"],
    "additionalProperties": False,
}
END_IDS = Tokenizer.load(CHAT).end_ids


@pytest.fixture(scope="module")
def compiler() -> Iterator[GrammarCompiler]:
    compiler = GrammarCompiler(CHAT, 2048, END_IDS, CONFIG)
    yield compiler
    compiler.close()


async def guide(compiler: GrammarCompiler) -> Guide:
    return await compiler.compile(schema_spec(SCHEMA, "json_schema", CONFIG))


def guided(rid: str, with_guide: Guide, seed: int, prompt: list[int] | None = None, **more: Any) -> Request:
    asked = {"max_tokens": 200, "temperature": 1.0, "stop_ids": END_IDS, "logprobs": 0, **more}
    choices = asked.pop("choices", 1)
    plain = request(rid, prompt or [5, 6, 7], seed=seed, choices=choices, **asked)
    return Request(rid, plain.prompts, plain.sampling, choices, guide=with_guide)


def require_schema(output: str) -> None:
    value = json.loads(output)
    assert list(value) == ["name", "ages", "kind"]
    assert len(value["name"]) <= 12
    assert len(value["ages"]) <= 3
    assert all(isinstance(age, int) and 0 <= age <= 99 for age in value["ages"])
    assert value["kind"] in ("cat", "dog")


def reason(deltas: list[Delta]) -> str | None:
    last = deltas[-1].finish
    return last.reason if last else None


async def test_a_random_model_writes_what_the_schema_says(tiny_model: Path, compiler: GrammarCompiler) -> None:
    one = await guide(compiler)
    results = finish(make_engine(tiny_model), *[guided(f"r{at}", one, at) for at in range(12)])
    outputs = [text(deltas) for deltas in results.values()]
    for deltas, output in zip(results.values(), outputs, strict=True):
        assert reason(deltas) == "stop"
        require_schema(output)
    assert len(set(outputs)) > 6


async def test_guided_and_free_rows_do_not_touch_each_other(tiny_model: Path, compiler: GrammarCompiler) -> None:
    one = await guide(compiler)
    free = [request(f"f{at}", [8, 9, at + 10], seed=at, temperature=1.0, max_tokens=40) for at in range(4)]
    mixed = finish(make_engine(tiny_model), *[guided(f"r{at}", one, at) for at in range(4)], *free)
    for at in range(4):
        assert text(mixed[f"r{at}", 0]) == text(finish(make_engine(tiny_model), guided("x", one, at))["x", 0])
        alone = finish(make_engine(tiny_model), request("x", [8, 9, at + 10], seed=at, temperature=1.0, max_tokens=40))
        assert text(mixed[f"f{at}", 0]) == text(alone["x", 0])


async def test_a_preempted_sequence_goes_on_where_its_grammar_was(tiny_model: Path, compiler: GrammarCompiler) -> None:
    one = await guide(compiler)
    wanted = [guided(f"r{at}", one, at, list(range(5 + at, 25 + at))) for at in range(6)]
    engine = make_engine(tiny_model, pages=60, output_reserve=0.0, max_batch_tokens=64)
    together = finish(engine, *wanted)
    assert engine.scheduler.preemptions > 0
    for at, each in enumerate(wanted):
        output = text(together[each.rid, 0])
        require_schema(output)
        again = guided("x", one, at, list(range(5 + at, 25 + at)))
        assert text(finish(make_engine(tiny_model), again)["x", 0]) == output


async def test_choices_of_one_prompt_follow_the_grammar_apart(tiny_model: Path, compiler: GrammarCompiler) -> None:
    results = finish(make_engine(tiny_model), guided("r", await guide(compiler), 3, choices=4))
    assert len({text(deltas) for deltas in results.values()}) > 1
    for deltas in results.values():
        require_schema(text(deltas))


async def test_an_aborted_one_leaves_the_shared_grammar_at_its_beginning(
    tiny_model: Path, compiler: GrammarCompiler
) -> None:
    one = await guide(compiler)
    engine = make_engine(tiny_model)
    engine.submit(guided("gone", one, 1))
    for _ in range(6):
        engine.step()
    (last,) = engine.abort("gone")
    assert last.finish is not None
    engine.submit(guided("next", one, 2))
    require_schema(text(drain(engine)["next", 0]))


async def test_greedy_output_and_too_few_tokens(tiny_model: Path, compiler: GrammarCompiler) -> None:
    one = await compiler.compile(regex_spec("[ab]{20}", "regex", CONFIG))
    engine = make_engine(tiny_model)
    results = finish(
        engine,
        guided("whole", one, 1, temperature=0.0),
        guided("cut", one, 1, temperature=0.0, max_tokens=2),
        guided("ignoring", one, 1, temperature=0.0, stop_ids=frozenset()),
    )
    assert re.fullmatch("[ab]{20}", text(results["whole", 0]))
    assert reason(results["whole", 0]) == "stop"
    assert reason(results["cut", 0]) == "length"
    assert text(results["ignoring", 0]) == text(results["whole", 0])
    assert reason(results["ignoring", 0]) == "stop"


async def test_a_grammar_that_may_end_ends_by_the_end_token_only(tiny_model: Path, compiler: GrammarCompiler) -> None:
    one = await compiler.compile(regex_spec("(ab)*", "regex", CONFIG))
    for seed in range(8):
        deltas = finish(make_engine(tiny_model), guided("r", one, seed, max_tokens=30))["r", 0]
        output = text(deltas)
        assert re.fullmatch("(ab)*", output if reason(deltas) == "stop" else output[: len(output) // 2 * 2])


async def test_stop_strings_and_bias_work_under_a_grammar(tiny_model: Path, compiler: GrammarCompiler) -> None:
    one = await guide(compiler)
    deltas = finish(make_engine(tiny_model), guided("r", one, 1, stop=('"ages"',)))["r", 0]
    assert '"ages"' not in text(deltas)
    assert text(deltas).lstrip().startswith("{")
    letters = await compiler.compile(regex_spec("[xy]", "regex", CONFIG))
    y = Tokenizer.load(CHAT).encode("y")[-1]
    biased = guided("r", letters, 1, temperature=0.0, logit_bias=((y, 100.0),))
    assert text(finish(make_engine(tiny_model), biased)["r", 0]) == "y"


async def test_log_probabilities_are_the_models_not_the_grammars(tiny_model: Path, compiler: GrammarCompiler) -> None:
    one = await compiler.compile(regex_spec("x", "regex", CONFIG))
    deltas = finish(make_engine(tiny_model), guided("r", one, 1))["r", 0]
    assert deltas[0].logprobs[0].logprob < -1.0  # one of 2,048 for a random model; 0 under the grammar


async def test_the_mask_allows_what_the_grammar_takes(compiler: GrammarCompiler) -> None:
    state = (await guide(compiler)).start()
    generator = torch.Generator().manual_seed(1)
    for _ in range(25):
        logits = torch.zeros(3, 2048)
        mask_(logits, [0, 2], [(state, ()), (state, ())])
        allowed = (logits[0] == 0).nonzero()[:, 0].tolist()
        valid = [id_ for id_ in range(2048) if state.count_valid([id_])]
        # where the text is forced, only the token that the tokenizer would use is allowed
        assert allowed == valid or (len(allowed) == 1 and allowed[0] in valid)
        assert torch.equal(logits[0], logits[2])
        assert (logits[1] == 0).all()
        if state.finished:
            break
        state.advance(allowed[int(torch.randint(len(allowed), (1,), generator=generator))])


async def test_drafts_are_masked_one_after_the_other_and_leave_no_trace(compiler: GrammarCompiler) -> None:
    tokenizer = Tokenizer.load(CHAT)
    one = await guide(compiler)
    state, straight = one.start(), one.start()
    drafts = tokenizer.encode('{"name": "ab", "ages": []')
    assert state.count_valid([*drafts, *drafts]) == len(drafts)
    masks, ahead, again = (torch.zeros(len(drafts) + 1, 64, dtype=torch.int32) for _ in range(3))
    state.fill(ahead, drafts)
    for row, id_ in zip(masks, [*drafts, 0], strict=True):
        straight.fill(row[None])
        straight.advance(id_)
    assert torch.equal(ahead, masks)
    state.fill(again, drafts)
    assert torch.equal(again, masks)
    assert state.error is None


async def test_drafts_up_to_the_end_of_the_grammar(compiler: GrammarCompiler) -> None:
    one = await compiler.compile(regex_spec("ab", "regex", CONFIG))
    drafts = Tokenizer.load(CHAT).encode("ab")
    rows = torch.zeros(len(drafts) + 1, 64, dtype=torch.int32)
    state = one.start()
    for _ in range(2):
        state.fill(rows, drafts)
        assert state.error is None
        assert not state.finished
        assert not rows[-1].any()
    for id_ in drafts:
        state.advance(id_)
    assert state.finished


async def test_guesses_change_nothing_that_is_guided(tiny_model: Path, compiler: GrammarCompiler) -> None:
    one = await compiler.compile(regex_spec("((abc|xyz),){12}end", "regex", CONFIG))
    for temperature in (0.0, 1.0):
        asked = [guided(f"r{at}", one, at, temperature=temperature, max_tokens=100) for at in range(6)]
        plain = finish(make_engine(tiny_model, speculation=SpeculationConfig(method="off")), *asked)
        engine = make_engine(tiny_model, speculation=SpeculationConfig(method="ngram", governed=False, ngram_least=1))
        guessed = finish(engine, *asked)
        assert engine.stats.accepted_drafts > 0
        for key, deltas in plain.items():
            assert re.fullmatch("((abc|xyz),){12}end", text(deltas))
            assert text(guessed[key]) == text(deltas)


async def test_a_forbidden_token_and_a_resource_limit_end_the_sequence_with_a_sentence(
    tiny_model: Path, compiler: GrammarCompiler
) -> None:
    state = (await guide(compiler)).start()
    state.advance(Tokenizer.load(CHAT).encode("x")[-1])
    assert state.error
    limits = LLParserLimits(step_lexer_fuel=50, step_max_items=5, max_lexer_states=40)
    matcher = LLMatcher(
        compiler.vocabulary().tokens, LLMatcher.grammar_from_json_schema(SCHEMA), log_level=0, limits=limits
    )
    assert not matcher.is_error()
    engine = make_engine(tiny_model)
    results = finish(engine, guided("poor", Guide(matcher), 1), guided("rich", await guide(compiler), 1))
    assert reason(results["poor", 0]) == "error"
    last = results["poor", 0][-1].finish
    assert last is not None
    assert "can no longer follow its format" in str(last.error)
    require_schema(text(results["rich", 0]))
    assert not engine.busy


EBNF = 'root ::= "<" item ("," item)* ">"\nitem ::= [a-c] | "dd"'
LARK = 'start: "<" item ("," item)* ">"\nitem: /[a-c]/ | "dd"'


@pytest.mark.parametrize("notation", [EBNF, LARK])
async def test_both_notations_of_a_grammar(tiny_model: Path, compiler: GrammarCompiler, notation: str) -> None:
    one = await compiler.compile(ebnf_spec(notation, "ebnf", CONFIG))
    deltas = finish(make_engine(tiny_model), guided("r", one, 5, stop_ids=END_IDS))["r", 0]
    output = text(deltas)
    if reason(deltas) == "stop":
        assert re.fullmatch(r"<([a-c]|dd)(,([a-c]|dd))*>", output)
    assert re.match(r"<([a-c]|dd)", output)


@pytest.mark.parametrize("indent", [None, 1, 2, 4, "\t"])
async def test_json_may_be_laid_out_as_json_is(compiler: GrammarCompiler, indent: Any) -> None:
    value = {"name": "a", "ages": [1, 2], "kind": "cat"}
    one = await guide(compiler)
    for output in (json.dumps(value, indent=indent), json.dumps(value, separators=(",", ":"))):
        state = one.start()
        for id_ in Tokenizer.load(CHAT).encode(output):
            state.advance(id_)
        assert state.error is None, output
        assert state.finished
    state = one.start()
    spaces = Tokenizer.load(CHAT).encode("{" + " " * 9)
    assert state.count_valid(spaces) < len(spaces)


async def test_any_json_object(tiny_model: Path, compiler: GrammarCompiler) -> None:
    one = await compiler.compile(object_spec("response_format"))
    for seed in range(6):
        deltas = finish(make_engine(tiny_model), guided("r", one, seed, max_tokens=300))["r", 0]
        assert text(deltas).startswith("{")
        if reason(deltas) == "stop":
            assert isinstance(json.loads(text(deltas)), dict)


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        (lambda: schema_spec({"not": {}}, "json_schema", CONFIG), "json_schema: this cannot be enforced: .*not"),
        (lambda: schema_spec({"type": "array", "uniqueItems": True}, "f", CONFIG), "f: .*uniqueItems"),
        (lambda: schema_spec({"type": "strin"}, "f", CONFIG), "f: .*strin"),
        (lambda: schema_spec({"$ref": "http://localhost/x"}, "f", CONFIG), "f: .*localhost.*within the schema only"),
        (
            lambda: schema_spec({"$ref": "#/$defs/n", "$defs": {"n": {"$ref": "#/$defs/n"}}}, "f", CONFIG),
            "f: too complex to be enforced: it refers to itself without end",
        ),
        (lambda: schema_spec({"type": "string", "pattern": "(?=x)"}, "f", CONFIG), "f: .*look-around"),
        (lambda: regex_spec("(a", "regex", CONFIG), "regex: .*unclosed group"),
        (lambda: ebnf_spec("root ::= missing", "ebnf", CONFIG), "ebnf: "),
        (lambda: ebnf_spec("root ::= (", "ebnf", CONFIG), "ebnf: "),
        (lambda: lark_spec("start: nothing", "tools"), "tools: .*nothing"),
        (lambda: schema_spec({"enum": ["x" * 70_000]}, "f", CONFIG), "f: 70013 bytes; this engine takes at most 65536"),
        (lambda: regex_spec("a" * 4097, "regex", CONFIG), "regex: 4097 bytes"),
        (lambda: ebnf_spec("#" * 70_000, "ebnf", CONFIG), "ebnf: 70000 bytes"),
        (lambda: schema_spec(deep(70), "f", CONFIG), "f: nested deeper than 64 levels"),
    ],
)
async def test_what_cannot_be_enforced_is_refused_by_name(compiler: GrammarCompiler, spec: Any, message: str) -> None:
    with pytest.raises(InvalidField, match=message) as refused:
        await compiler.compile(spec())
    assert refused.value.param is not None


def deep(levels: int) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "integer"}
    for _ in range(levels // 2):
        schema = {"type": "object", "properties": {"a": schema}}
    return schema
