"""Compiling grammars under attack: every costly one ends at the deadline, and no other organization waits for it."""

from __future__ import annotations

import asyncio
import random
import shutil
import string
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from contracts.errors import EngineRefused, InvalidField, Overloaded, RateLimited
from engines.drivers.error_bodies import engine_error
from engines.embedded.config import GrammarConfig
from engines.embedded.grammar.compiler import GrammarCompiler
from engines.embedded.grammar.guide import Guide
from engines.embedded.grammar.orders import Order, Verdict
from engines.embedded.grammar.plain import PLAIN_BYTES, is_plain
from engines.embedded.grammar.spec import GrammarSpec, ebnf_spec, object_spec, regex_spec, schema_spec
from engines.embedded.grammar.trial_process import TrialProcess
from engines.embedded.grammar.turns import Turns
from engines.embedded.grammar.vocabulary import KeptDefinition, Vocabulary
from engines.embedded.http.errors import error_answer
from engines.tokenizer.tokenizer import Tokenizer
from tests.engines.embedded.tiny import SHIPPED

CHAT = SHIPPED / "slipstream-chat"
END_IDS = Tokenizer.load(CHAT).end_ids
DEFINITION = KeptDefinition(CHAT)


@pytest.fixture(scope="module", autouse=True)
def closed() -> Iterator[None]:
    """Give the definition's file back at the end."""
    yield
    DEFINITION.close()


CONFIG = GrammarConfig(compile_timeout_s=60)
"""No deadline ends what is cheap, on a machine however busy."""
DEADLINE_S = 0.2
"""What is costly has, which takes minutes."""


def words(seed: int) -> Callable[[int], str]:
    source = random.Random(seed)
    return lambda length: "".join(source.choice(string.ascii_letters) for _ in range(length))


def patterns(count: int) -> dict[str, Any]:
    word = words(5)
    names = {f"^{word(2)}.*{word(2)}$": {"type": "string"} for _ in range(count)}
    return {"type": "object", "patternProperties": names}


def multiples(count: int) -> dict[str, Any]:
    word = words(5)
    return {
        "type": "object",
        "properties": {word(4): {"type": "integer", "multipleOf": 7_919 + 2 * at} for at in range(count)},
    }


def intersections(count: int) -> dict[str, Any]:
    word = words(5)
    return {
        "allOf": [
            {"anyOf": [{"type": "string", "pattern": f".*{word(2)}.*{word(2)}"} for _ in range(3)]}
            for _ in range(count)
        ]
    }


def schema(value: dict[str, Any]) -> GrammarSpec:
    return schema_spec(value, "response_format.json_schema", CONFIG)


ENDLESS = patterns(800)
COSTLY: dict[str, Callable[[], GrammarSpec]] = {
    "patternProperties": lambda: schema(ENDLESS),
    "multipleOf": lambda: schema(multiples(200)),
    "nested anyOf patterns": lambda: schema(intersections(12)),
    "one multiple": lambda: schema({"type": "integer", "multipleOf": 999_983}),
    "lark": lambda: ebnf_spec(
        'start: "a" t\nt: '
        + " & ".join(f"T{n}" for n in range(40))
        + "\n"
        + "\n".join(f"T{n}: /(.|\\n)*{chr(97 + n % 26)}(.|\\n){{{n + 5}}}/" for n in range(40)),
        "ebnf",
        CONFIG,
    ),
}
"""By what makes them so. Where llguidance refuses one by a limit of its own, that is as good."""
CHEAP: dict[str, Callable[[], GrammarSpec]] = {
    "huge enum": lambda: schema({"enum": [words(at)(9) for at in range(4_000)]}),
    "huge alternation": lambda: regex_spec("|".join(words(at)(9) for at in range(400)), "regex", CONFIG),
    "deep repetition": lambda: regex_spec("(a{1,300}b?){1,300}", "regex", CONFIG),
    "many rules": lambda: ebnf_spec(
        "\n".join(["root ::= " + " | ".join(f"r{n}" for n in range(900)), *(f'r{n} ::= "{n}"' for n in range(900))]),
        "ebnf",
        CONFIG,
    ),
}


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> Callable[[GrammarSpec], None]:
    """Gives the attempts at one grammar `DEADLINE_S`, and leaves the others their time."""
    ask, hurried = TrialProcess._ask, set[str]()

    def asked(self: TrialProcess, order: Order, left: threading.Event) -> Verdict:
        return ask(self, Order(order.text, DEADLINE_S) if order.text in hurried else order, left)

    monkeypatch.setattr(TrialProcess, "_ask", asked)
    return lambda spec: hurried.add(spec.text)


@pytest.fixture
async def compiler() -> AsyncIterator[GrammarCompiler]:
    compiler = GrammarCompiler(CHAT, 2_048, END_IDS, CONFIG)
    yield compiler
    compiler.close()


@pytest.fixture(scope="module")
def process() -> Iterator[TrialProcess]:
    process = TrialProcess(DEFINITION, 2_048, END_IDS, CONFIG)
    yield process
    process.close()


async def other_tenants(compiler: GrammarCompiler, names: int = 3) -> None:
    """They ask for schemas that nobody has asked for, plain and not."""
    for at in range(names):
        plain = schema({"type": "object", "properties": {f"field_{at}": {"type": "string"}}})
        rich = schema({"type": "object", "properties": {f"field_{at}": {"type": "string", "format": "date"}}})
        assert plain.plain
        assert not rich.plain
        for spec in (plain, rich):
            assert isinstance(await compiler.compile(spec, f"other {at}"), Guide)


@pytest.mark.parametrize("kind", COSTLY)
async def test_a_costly_grammar_is_refused_at_the_deadline_and_nobody_else_waits(
    compiler: GrammarCompiler, impatient: Callable[[GrammarSpec], None], kind: str
) -> None:
    compiler.start()
    spec = COSTLY[kind]()
    impatient(spec)
    attack = asyncio.create_task(compiler.compile(spec, "attacker"))
    await other_tenants(compiler)
    with pytest.raises(InvalidField, match=spec.field) as refused:
        await attack
    assert refused.value.param == spec.field
    await other_tenants(compiler, 1)


@pytest.mark.parametrize("kind", CHEAP)
async def test_what_is_large_but_cheap_ends_one_way_or_the_other(compiler: GrammarCompiler, kind: str) -> None:
    spec = CHEAP[kind]()
    try:
        assert isinstance(await compiler.compile(spec, "a"), Guide)
    except InvalidField as refused:
        assert refused.param == spec.field
    await other_tenants(compiler, 1)


async def test_the_deadline_is_named_with_its_limit() -> None:
    compiler = GrammarCompiler(CHAT, 2_048, END_IDS, GrammarConfig(compile_timeout_s=DEADLINE_S, compile_processes=1))
    with pytest.raises(
        InvalidField, match=r"response_format\.json_schema: too complex: .* longer than 0\.2 s"
    ) as refused:
        await compiler.compile(schema(ENDLESS), "a")
    compiler.close()
    told = engine_error(*error_answer(refused.value))
    assert isinstance(told, EngineRefused), "the gateway takes it for the client's error"
    assert (told.message, told.param) == (refused.value.message, "response_format.json_schema")


async def test_an_organization_that_floods_leaves_a_process_to_the_others(compiler: GrammarCompiler) -> None:
    compiler.start()
    flood = [asyncio.create_task(compiler.compile(schema(patterns(800 + at)), "attacker")) for at in range(20)]
    await asyncio.sleep(0)
    await other_tenants(compiler)
    assert sum(task.done() for task in flood) < 20
    for task in flood:
        task.cancel()
    await asyncio.gather(*flood, return_exceptions=True)
    await other_tenants(compiler, 1)


async def test_a_client_that_leaves_ends_its_compile_and_gives_its_place_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    patient = GrammarConfig(compile_timeout_s=60, compile_processes=1)
    compiler = GrammarCompiler(CHAT, 2_048, END_IDS, patient)
    (trial,) = compiler._trials
    await asyncio.to_thread(trial.warm)
    assert trial._child is not None
    child, run, entered = trial._child, trial.run, threading.Event()

    def noted(text: str, left: threading.Event) -> Verdict:
        entered.set()
        return run(text, left)

    monkeypatch.setattr(trial, "run", noted)
    leaving = asyncio.create_task(compiler.compile(schema(ENDLESS), "a"))
    # the one place is taken: the next one waits for the first one's death, not for its deadline
    staying = asyncio.create_task(compiler.compile(regex_spec("[ab]{3}", "regex", CONFIG), "b"))
    assert await asyncio.to_thread(entered.wait, 30)
    leaving.cancel()
    with pytest.raises(asyncio.CancelledError):
        await leaving
    async with asyncio.timeout(60):
        assert isinstance(await staying, Guide)
    assert child.returncode is not None
    compiler.close()


async def test_closing_ends_a_compile_under_way() -> None:
    compiler = GrammarCompiler(CHAT, 2_048, END_IDS, GrammarConfig(compile_timeout_s=60))
    running = asyncio.create_task(compiler.compile(schema(ENDLESS), "a"))
    await asyncio.sleep(0)
    compiler.close()
    async with asyncio.timeout(30):
        with pytest.raises((InvalidField, Overloaded)):
            await running


async def test_the_same_grammar_is_compiled_once_and_old_ones_are_forgotten() -> None:
    compiler = GrammarCompiler(CHAT, 2_048, END_IDS, GrammarConfig(kept=2))

    async def compiled(name: str, tenant: str = "a") -> Guide:
        return await compiler.compile(schema({"const": name}), tenant)

    first = await compiled("a")
    assert await compiled("a") is first
    for name in ("b", "c"):
        await compiled(name)
    assert await compiled("a") is not first
    compiler.close()


async def test_one_organizations_grammars_do_not_crowd_out_anothers() -> None:
    compiler = GrammarCompiler(CHAT, 2_048, END_IDS, GrammarConfig(kept=4))
    theirs = await compiler.compile(object_spec("f"), "b")
    for at in range(10):
        await compiler.compile(schema({"const": at}), "a")
    assert await compiler.compile(object_spec("f"), "b") is theirs
    compiler.close()


async def test_plain_and_kept_grammars_start_no_process(compiler: GrammarCompiler) -> None:
    await compiler.compile(object_spec("f"), "a")
    await compiler.compile(schema({"type": "object", "properties": {"a": {"enum": ["x", "y"]}}}), "a")
    assert all(trial._child is None for trial in compiler._trials)
    tried = regex_spec("[ab]+", "regex", CONFIG)
    kept = await compiler.compile(tried, "a")
    for trial in compiler._trials:
        trial.close()
    assert await compiler.compile(tried, "a") is kept


async def test_compiling_leaves_the_event_loop_free(compiler: GrammarCompiler, monkeypatch: pytest.MonkeyPatch) -> None:
    release = asyncio.Event()
    loop = asyncio.get_running_loop()
    compile_ = compiler._compile

    def slow(spec: GrammarSpec) -> Guide:
        # ends only when the event loop gets to run
        asyncio.run_coroutine_threadsafe(release.wait(), loop).result(timeout=30)
        return compile_(spec)

    monkeypatch.setattr(compiler, "_compile", slow)
    running = [asyncio.create_task(compiler.compile(spec)) for spec in (object_spec("f"), regex_spec("a", "r", CONFIG))]
    await asyncio.sleep(0)
    release.set()
    assert all(isinstance(guide, Guide) for guide in await asyncio.gather(*running))


def test_a_process_says_what_the_compiler_itself_says(process: TrialProcess) -> None:
    vocabulary = Vocabulary.read(CHAT, 2_048, END_IDS)
    for spec in (
        object_spec("f"),
        schema({"not": {}}),
        schema({"type": "strin"}),
        regex_spec("(a", "regex", CONFIG),
        regex_spec("[ab]{20}", "regex", CONFIG),
        schema({"anyOf": [{"type": "string", "pattern": f".*a.{{{length}}}b"} for length in range(300)]}),
    ):
        _, fault = vocabulary.compile(spec.text)
        assert process.run(spec.text, threading.Event()).fault == fault


def test_a_process_has_neither_pytorch_nor_our_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLIPSTREAM_SECRET", "hidden")
    fresh = TrialProcess(DEFINITION, 2_048, END_IDS, CONFIG)
    fresh.warm()
    assert fresh._child is not None
    inside = Path(f"/proc/{fresh._child.pid}")
    assert b"hidden" not in (inside / "environ").read_bytes()
    assert "torch" not in (inside / "maps").read_text()
    fresh.close()


def test_a_process_restarts_without_the_models_file(tmp_path: Path) -> None:
    folder = shutil.copytree(CHAT, tmp_path / "model", ignore=shutil.ignore_patterns("draft", "*.safetensors"))
    definition = KeptDefinition(folder)
    process = TrialProcess(definition, 2_048, END_IDS, CONFIG)
    process.warm()
    shutil.rmtree(folder)
    first = process._child
    process.kill()
    assert first is not None
    first.wait()
    assert process.run(regex_spec("[ab]{2}", "regex", CONFIG).text, threading.Event()).fault is None
    process.close()
    definition.close()


def test_a_process_that_lacks_memory_ends_alone() -> None:
    poor = TrialProcess(DEFINITION, 2_048, END_IDS, GrammarConfig(compile_bytes=16 * 1024 * 1024, compile_timeout_s=60))
    with pytest.raises(EOFError):
        poor.run(schema({"type": "integer", "multipleOf": 999_983}).text, threading.Event())
    assert poor.run(object_spec("f").text, threading.Event()).fault is None
    poor.close()


@pytest.mark.parametrize(
    "value",
    [
        {"type": "object"},
        {"type": "object", "properties": {"pattern": {"type": "string"}}, "required": ["pattern"]},
        {"anyOf": [{"type": "null"}, {"type": "array", "items": {"type": "number"}}], "description": "a list"},
        {"type": "object", "additionalProperties": False, "properties": {"a": {"enum": ["x", 1, None]}}},
        True,
    ],
)
def test_schemas_of_plain_keywords_are_plain(value: Any) -> None:
    assert is_plain(value, 100)
    assert not is_plain(value, PLAIN_BYTES + 1)


@pytest.mark.parametrize(
    "value",
    [
        {"type": "string", "pattern": "a"},
        {"type": "object", "properties": {"a": {"multipleOf": 3}}},
        {"items": {"anyOf": [{"type": "string"}, {"maxLength": 3}]}},
        {"type": "object", "properties": {"a": True}, "anyOf": [{"type": "object"}]},
        {"additionalProperties": {"format": "date"}},
        {"$ref": "#"},
        {"x-guidance": {"whitespace_pattern": ".*a.{30}"}},
        {"type": "object", "properties": []},
        {"items": [{"type": "string"}]},
        {"const": {"a": 1}},
        {"unheard of": 1},
    ],
)
def test_whatever_may_be_costly_is_not_plain(value: Any) -> None:
    assert not is_plain(value, 100)


def random_plain(source: random.Random, deep: int) -> Any:
    """A schema of plain keywords, of whatever shape."""
    word = words(source.randrange(10**6))
    kind = source.choice(["leaf", "enum", "object", "array", "anyOf"] if deep else ["leaf", "enum"])
    inner = [random_plain(source, deep - 1) for _ in range(source.randrange(1, 7))] if deep else []
    if kind == "leaf":
        names = ["string", "integer", "number", "boolean", "null"]
        return {"type": source.sample(names, source.randrange(1, 6))}
    if kind == "enum":
        return {"enum": [word(source.randrange(1, 30)) for _ in range(source.randrange(1, 40))]}
    if kind == "array":
        return {"type": "array", "items": inner[0]}
    if kind == "anyOf":
        return {"anyOf": inner}
    more = source.choice([True, False, inner[0]])
    names = ["a" * source.randrange(1, 90) if source.random() < 0.3 else word(3) for _ in inner]
    return {"type": "object", "properties": dict(zip(names, inner, strict=True)), "additionalProperties": more}


@pytest.mark.nightly
def test_what_is_plain_compiles_within_a_small_share_of_the_deadline() -> None:
    """CPU time, the best of three: another process's turn is not the compiler's."""
    vocabulary, source = Vocabulary.read(CHAT, 2_048, END_IDS), random.Random(1)
    vocabulary.compile(object_spec("f").text)
    found = 0
    while found < 150:
        spec = schema(random_plain(source, source.randrange(5)))
        if not spec.plain:
            continue
        found += 1
        taken_s = []
        for _ in range(3):
            began_s = time.process_time()
            vocabulary.compile(spec.text)
            taken_s.append(time.process_time() - began_s)
        assert min(taken_s) < 0.1, spec.text


async def test_organizations_take_turns_and_have_one_place_each() -> None:
    turns, order, held = Turns(1, 10, 30), [], asyncio.Event()

    async def take(tenant: str) -> None:
        async with turns.turn(tenant):
            order.append(tenant)
            await held.wait()

    tasks = [asyncio.create_task(take(tenant)) for tenant in ("a", "a", "a", "b", "c", "b")]
    await asyncio.sleep(0)
    held.set()
    await asyncio.gather(*tasks)
    assert order == ["a", "b", "c", "a", "b", "a"]


async def test_a_second_place_is_another_organizations() -> None:
    turns = Turns(2, 10, 30)
    async with turns.turn("a"):
        second = asyncio.create_task(_pass(turns, "a"))
        await asyncio.sleep(0)
        await _pass(turns, "b")
        assert not second.done()
    await second


async def _pass(turns: Turns, tenant: str) -> None:
    async with turns.turn(tenant):
        pass


async def test_who_leaves_the_queue_gives_up_the_turn_and_no_place_is_lost() -> None:
    turns = Turns(1, 2, 30)
    async with turns.turn("a"):
        left = [asyncio.create_task(_pass(turns, "b")) for _ in range(2)]
        await asyncio.sleep(0)
        with pytest.raises(RateLimited):
            await _pass(turns, "b")
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)
        granted = asyncio.create_task(_pass(turns, "b"))
        await asyncio.sleep(0)
    # the place was handed to it in this very moment
    granted.cancel()
    await asyncio.gather(granted, return_exceptions=True)
    async with asyncio.timeout(10):
        await _pass(turns, "c")


async def test_a_slot_that_is_free_as_its_next_request_gives_up_goes_to_another() -> None:
    turns = Turns(1, 2, 30)
    async with turns.turn("a"):
        left = asyncio.create_task(_pass(turns, "b"))
        await asyncio.sleep(0)
        left.cancel()
    await asyncio.gather(left, return_exceptions=True)
    async with asyncio.timeout(10):
        await _pass(turns, "b")
        await _pass(turns, "c")


async def test_waiting_for_a_turn_has_an_end() -> None:
    turns = Turns(1, 2, 0.01)
    async with turns.turn("a"):
        with pytest.raises(Overloaded, match=r"0\.01 s"):
            await _pass(turns, "b")
    await _pass(turns, "b")
