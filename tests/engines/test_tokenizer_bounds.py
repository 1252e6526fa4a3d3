"""What one prompt may cost: no standstill of the loop, nothing quadratic, nothing encoded that cannot fit."""

from __future__ import annotations

import asyncio
import random
import re
import subprocess
import sys
import threading
import time
import unicodedata
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import pytest
import tokenizers
from hypothesis import given
from hypothesis import strategies as st

from contracts.errors import ContextTooLong, InvalidField
from engines.tokenizer.fair_executor import FairExecutor
from engines.tokenizer.json_value import size_up_to
from engines.tokenizer.longest import NFC_SHRINKS
from engines.tokenizer.off_loop import (
    INLINE_BYTES,
    KNOWN_CONVERSATION_BYTES,
    KNOWN_TEXT_BYTES,
    VALUE_BYTES,
    OffLoopTokenizer,
)
from engines.tokenizer.segment_cache import LoopAllowance, NeedsThread
from engines.tokenizer.tokenizer import CUT_TOKENS, SLICE_CHARACTERS, Tokenizer
from tests.engines.test_tokenizer import write_model
from tests.engines.test_tokenizer_text import call_with

MODELS = Path(__file__).parents[2] / "models"
STANDSTILL_S = 0.05
MEGABYTE = 1_000_000
LARGE_CONTEXT = 131_072
ResultT = TypeVar("ResultT")


@pytest.fixture(scope="module")
def chat() -> Tokenizer:
    return Tokenizer.load(MODELS / "slipstream-chat")


@pytest.fixture(scope="module")
def code() -> Tokenizer:
    return Tokenizer.load(MODELS / "slipstream-code")


HOSTILE: dict[str, Callable[[int], str]] = {
    # a quarter: they take the longest by far, and a longer time has more of other processes in it
    "digits": lambda size: "".join(random.Random(1).choices("0123456789", k=size // 4)),
    "one letter": lambda size: "a" * size,
    "emoji": lambda size: "😀" * (size // 4),
    "private use": lambda size: "".join(chr(0xE000 + index % 6_400) for index in range(size // 3)),
    "long words": lambda size: " ".join(["x" * 5_000] * (size // 5_001)),
    "spaces": lambda size: " " * size,
    "control strings": lambda size: "<|end|>" * (size // 7),
    "beginnings of control strings": lambda size: "<|" * (size // 2),
    "all marks and a control string": lambda size: (
        "".join(map(chr, range(0xE000, 0xF900))) * (size // 20_000) + "<|end|>"
    ),
}
"""Text of about so many bytes."""


class Machine:
    """How long a process of its own stands still at a time, because others have the cores."""

    SCRIPT = """
import select, sys, time
longest, last = 0.0, time.perf_counter()
while True:
    asked, _, _ = select.select([sys.stdin], [], [], 0.001)
    now = time.perf_counter()
    longest, last = max(longest, now - last), now
    if asked:
        if not sys.stdin.readline():
            break
        print(longest, flush=True)
        longest = 0.0
"""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", self.SCRIPT], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def standstill(self) -> float:
        """The longest since it was asked last, in seconds."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        return float(self._process.stdout.readline())

    def close(self) -> None:
        self._process.communicate(timeout=30)


@pytest.fixture(scope="module")
def machine() -> Iterator[Machine]:
    machine = Machine()
    yield machine
    machine.close()


async def keeps_running(machine: Machine, work: Callable[[], Awaitable[Any]]) -> bool:
    """Whether the loop stands still for no longer than it must: beyond what any process of a busy machine does. In one
    of some tries: what `work` itself does to the loop, it does every time."""
    for _ in range(4):
        machine.standstill()
        longest = await standstill(work())
        if longest <= STANDSTILL_S + machine.standstill():
            return True
    return False


async def standstill(work: Awaitable[Any]) -> float:
    """Longest time that the loop did nothing else while this was awaited, in seconds."""
    longest = 0.0
    running = True

    async def beat() -> None:
        nonlocal longest
        last = time.perf_counter()
        while running:
            await asyncio.sleep(0.001)
            now = time.perf_counter()
            longest, last = max(longest, now - last), now

    heart = asyncio.create_task(beat())
    await asyncio.sleep(0)
    try:
        await work
    except ContextTooLong:
        pass
    finally:
        running = False
        await heart
    return longest


class Watched:
    """A library of which only the method is there that gives up the interpreter lock; notes in which thread it is."""

    def __init__(self, backend: Any) -> None:
        self._backend = backend
        self.threads: set[int] = set()

    def encode_batch_fast(self, texts: list[str], **options: Any) -> Any:
        self.threads.add(threading.get_ident())
        return self._backend.encode_batch_fast(texts, **options)


@pytest.mark.parametrize("name", HOSTILE)
async def test_what_is_long_is_encoded_in_other_threads_without_the_interpreter_lock(name: str) -> None:
    """Encoding held the interpreter lock for up to 17 seconds, of 4 MB."""
    tokenizer = Tokenizer.load(MODELS / "slipstream-chat")
    text = HOSTILE[name](100_000)
    messages = [{"role": "user", "content": text}]
    expected = tokenizer.encode(text), tokenizer.chat_ids(messages)
    # the check whether it can fit at all is switched off: the encoding itself is looked at
    tokenizer.longest_token_bytes = None
    plain, parsing = Watched(tokenizer._plain), Watched(tokenizer._parsing)
    tokenizer._plain, tokenizer._parsing = plain, parsing
    off_loop = OffLoopTokenizer(tokenizer)
    assert (
        await off_loop.encode(text, LARGE_CONTEXT),
        await off_loop.chat_ids(messages, None, LARGE_CONTEXT),
    ) == expected
    assert plain.threads
    assert threading.get_ident() not in plain.threads | parsing.threads
    off_loop.close()


def test_the_text_of_many_ids_is_found_without_the_interpreter_lock() -> None:
    tokenizer, ids = Tokenizer.load(MODELS / "slipstream-chat"), [5] * 100_000
    began, found = threading.Event(), threading.Event()

    def work() -> None:
        began.set()
        tokenizer.whole_text(ids)
        found.set()

    before_s = sys.getswitchinterval()
    thread = threading.Thread(target=work)
    sys.setswitchinterval(1_000)  # so this thread continues only once the other one gives the lock up
    try:
        thread.start()
        began.wait()
        assert not found.is_set()
    finally:
        sys.setswitchinterval(before_s)
        thread.join()


@pytest.mark.nightly
@pytest.mark.parametrize("megabytes", [1, 4])
@pytest.mark.parametrize("name", HOSTILE)
async def test_megabytes_leave_the_loop_running(machine: Machine, name: str, megabytes: int) -> None:
    """Encoding held the interpreter lock for up to 17 seconds, of 4 MB."""
    tokenizer = Tokenizer.load(MODELS / "slipstream-chat")
    # what says that it cannot fit is switched off: the encoding itself is looked at
    tokenizer.longest_token_bytes = None
    off_loop = OffLoopTokenizer(tokenizer)
    text = HOSTILE[name](megabytes * MEGABYTE)
    messages = [{"role": "user", "content": text}]
    assert await keeps_running(machine, lambda: off_loop.encode(text, LARGE_CONTEXT))
    assert await keeps_running(machine, lambda: off_loop.chat_ids(messages, None, LARGE_CONTEXT))
    off_loop.close()


@pytest.mark.nightly
async def test_thousands_of_messages_leave_the_loop_running(machine: Machine, chat: Tokenizer) -> None:
    off_loop = OffLoopTokenizer(chat)
    messages = [{"role": ("user", "assistant")[i % 2], "content": f"hello <|end|> {i} " * 9} for i in range(5_000)]
    assert await keeps_running(machine, lambda: off_loop.chat_ids(messages))
    off_loop.close()


async def test_what_runs_on_the_loop_is_small_all_texts_and_values_together(chat: Tokenizer) -> None:
    class Refusing:
        async def run(self, tenant: str, size_bytes: int, work: Any) -> Any:
            raise InvalidField(f"{tenant} {size_bytes}")

    off_loop = OffLoopTokenizer(chat, Refusing())  # type: ignore[arg-type]
    message = {"role": "user", "content": "hi"}
    assert await off_loop.chat_ids([message]) == chat.chat_ids([message])
    half = "x" * (INLINE_BYTES // 2)
    many = {"type": "function", "function": {"name": "f", "parameters": {"enum": [[]] * INLINE_BYTES}}}
    for work in (
        off_loop.encode("é" * (INLINE_BYTES // 2 + 1), tenant="acme"),
        off_loop.fill_ids(half, half + "x", tenant="acme"),
        off_loop.chat_ids([{"role": "user", "content": text} for text in (half, half + "x")], tenant="acme"),
        off_loop.chat_ids([message], [many], tenant="acme"),
    ):
        with pytest.raises(InvalidField, match=r"acme \d{4,}"):
            await work


async def test_a_known_conversation_is_continued_on_the_loop(chat: Tokenizer) -> None:
    class Counting(FairExecutor):
        runs = 0

        async def run(self, tenant: str, size_bytes: int, work: Callable[[], ResultT]) -> ResultT:
            self.runs += 1
            return await super().run(tenant, size_bytes, work)

    off_loop = OffLoopTokenizer(chat, executor := Counting())
    known = [
        {"role": "user", "content": "word " * (KNOWN_CONVERSATION_BYTES // 10)},
        {"role": "assistant", "content": "Yes."},
    ]
    few_new = [*known, {"role": "user", "content": "word " * (INLINE_BYTES // 10)}]
    many_new = [*known, {"role": "user", "content": "words " * (INLINE_BYTES // 6 + 1)}]
    too_long = [*known, {"role": "user", "content": "word " * (KNOWN_CONVERSATION_BYTES // 9)}]
    too_many = [*known, *[{"role": "user", "content": "a"}] * (KNOWN_CONVERSATION_BYTES // VALUE_BYTES // 3)]
    escaped = [*known, {"role": "user", "content": "<|end|>"}]
    for messages, tenant, runs in (
        *((known, "acme", 1), (known, "acme", 1), (few_new, "acme", 1), (known, "zeta", 2), (known, "", 3)),
        *((many_new, "acme", 4), (many_new, "acme", 4), (too_long, "acme", 5), (too_long, "acme", 6)),
        *((too_many, "acme", 7), (too_many, "acme", 8), (escaped, "acme", 9), (escaped, "acme", 10)),
    ):
        ids = await off_loop.chat_ids(messages, tenant=tenant)
        assert (list(ids), executor.runs) == (chat.chat_ids(messages), runs)
    executor.close()


async def test_what_needs_a_thread_is_not_done_on_the_loop_first(
    chat: Tokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    def needs_thread(messages: list[dict[str, Any]]) -> None:
        with pytest.raises(NeedsThread):
            chat.chat_ids(messages, tenant="acme", allowance=LoopAllowance(MEGABYTE))

    monkeypatch.setattr("engines.tokenizer.escape.Escape.replace", lambda _: pytest.fail("14 ms for 128 KiB"))
    needs_thread([{"role": "user", "content": "<|end|>" * 9_000}])
    monkeypatch.setattr("engines.tokenizer.template.parsed_arguments", lambda *_: pytest.fail("90 ms for 128 KiB"))
    needs_thread([call_with('{"a":[' + "1," * (KNOWN_CONVERSATION_BYTES // 3) + "1]}")])
    needs_thread([call_with('{"a":[' + '"a<b",' * (KNOWN_CONVERSATION_BYTES // 9) + "1]}")])

    needs_thread([call_with('{"a":' + "7" * 4_300 + "}")])
    needs_thread([call_with('{"a":"' + "\\u003c|end|" * 100 + '"}')])
    monkeypatch.setattr("engines.tokenizer.control.ControlTokens.risky", lambda *_: pytest.fail("6 ms for 128 KiB"))
    needs_thread([{"role": "user", "content": "<" * KNOWN_CONVERSATION_BYTES}])
    properties = {f"{number}": {"description": "x" * 20 + "<" + "x" * 20} for number in range(600)}
    with pytest.raises(NeedsThread):
        chat.chat_ids([{"role": "user", "content": "hi"}], [properties], tenant="acme", allowance=LoopAllowance(0))

    attempts: list[bool] = []
    off_loop = OffLoopTokenizer(chat)

    def work(allowance: LoopAllowance | None) -> str:
        attempts.append(allowance is not None)
        if allowance is not None:
            allowance.spend(["x" * (INLINE_BYTES - 63)])
        return "done"

    for tenant, prompt, tried in (
        *(("acme", "x" * INLINE_BYTES, [False]), ("acme", [9] * (INLINE_BYTES // 4), [False])),
        *(("", "x" * (INLINE_BYTES + 1), [False]), ("acme", "x" * (INLINE_BYTES + 1), [True, False])),
        *(("acme", [10**3_000] * 100, [False]), ("acme", "x" * (KNOWN_TEXT_BYTES + 1), [False])),
    ):
        attempts.clear()
        assert await off_loop.run_known(tenant, prompt, work) == "done"
        assert attempts == tried
    off_loop.close()


def test_a_slow_template_is_not_rendered_on_the_loop(tmp_path: Path) -> None:
    template = "{% for m in messages %}{% for n in messages %}{% if m == n %}.{% endif %}{% endfor %}{% endfor %}"
    tokenizer = Tokenizer.load(write_model(tmp_path, [], {"chat_template": template}))
    messages = [{"role": "user", "content": "hi"}] * 400
    with pytest.raises(NeedsThread):
        tokenizer.chat_ids(messages, tenant="acme", allowance=LoopAllowance(MEGABYTE))
    assert tokenizer.decode(tokenizer.chat_ids(messages)) == "." * len(messages) ** 2


def test_many_short_new_texts_need_a_thread(chat: Tokenizer) -> None:
    messages = [{"role": "user", "content": f"{number}"} for number in range(500)]
    with pytest.raises(NeedsThread):
        chat.chat_ids(messages, tenant="many", allowance=LoopAllowance(INLINE_BYTES))


def test_a_long_text_is_not_copied_to_compare_its_size() -> None:
    class Long(str):
        def encode(self, encoding: str = "utf-8", errors: str = "strict") -> bytes:
            pytest.fail("it is longer than the limit")

    assert size_up_to([Long("é" * 100)], 99) > 99
    assert size_up_to(["é" * 100], 300) == 201
    assert size_up_to([10**300], 300) > 300


# Bytes that cannot fit


class Untouched:
    """A library that must not be asked."""

    def encode_batch_fast(self, *_: Any, **__: Any) -> Any:
        raise AssertionError("encoded")


@pytest.mark.parametrize("endpoint", ["text", "chat"])
def test_bytes_that_cannot_fit_are_refused_before_they_are_encoded(endpoint: str) -> None:
    tokenizer = Tokenizer.load(MODELS / "slipstream-chat")
    longest = tokenizer.longest_token_bytes
    assert longest is not None
    tokenizer._plain = tokenizer._parsing = Untouched()

    def ask(text: str) -> None:
        if endpoint == "text":
            tokenizer.encode(text, 100)
        else:
            tokenizer.chat_ids([{"role": "user", "content": text}], None, 100)

    with pytest.raises(ContextTooLong) as refused:
        ask("x" * (100 * longest + 1))
    assert "context is 100 tokens" in refused.value.message
    assert re.search(r"The prompt has 1\d{3} bytes, which are at least 10\d tokens", refused.value.message)
    with pytest.raises(AssertionError, match="encoded"):
        ask("x" * (100 * longest - 50))


words = st.one_of(st.text(max_size=8), st.sampled_from(["    ", "\n        ", "return", "self", "<|endoftext|>", "0"]))


@given(text=st.lists(words, max_size=40).map("".join))
def test_no_id_stands_for_more_bytes_than_the_longest_token(chat: Tokenizer, code: Tokenizer, text: str) -> None:
    for tokenizer in (chat, code):
        assert tokenizer.least_tokens(len(text.encode())) <= len(tokenizer.encode(text))
        conversation = tokenizer.chat_ids([{"role": "user", "content": text}]) if tokenizer is chat else []
        assert tokenizer.decode(conversation) == (text if tokenizer is chat else "")


def test_the_longest_tokens_themselves_are_let_through(code: Tokenizer) -> None:
    longest = max(range(code.vocabulary_size), key=lambda id_: len(code.token_bytes(id_)))
    assert code.longest_token_bytes is not None
    text = code.token_text(longest) * 50
    assert len(code.encode(text)) >= code.least_tokens(len(text.encode()))
    assert len(code.token_bytes(longest)) <= code.longest_token_bytes


def saved(backend: tokenizers.Tokenizer, folder: Path) -> Tokenizer:
    backend.save(str(folder / "tokenizer.json"))
    return Tokenizer.load(folder)


BYTE_PIECES = {f"<0x{byte:02X}>": byte for byte in range(256)}


def pieces(**options: Any) -> tokenizers.Tokenizer:
    """As SentencePiece has them."""
    return tokenizers.Tokenizer(tokenizers.models.BPE(BYTE_PIECES | {"▁the": 256}, [], **options))


def test_nothing_is_refused_by_bytes_where_text_may_vanish(tmp_path: Path) -> None:
    """Each of these gives few ids, or none, for any amount of some text."""
    normalizers, cutters = tokenizers.normalizers, tokenizers.pre_tokenizers
    shortening, removing = pieces(byte_fallback=True), pieces(byte_fallback=True)
    shortening.normalizer = normalizers.Sequence([normalizers.Strip()])
    removing.pre_tokenizer = cutters.WhitespaceSplit()
    for backend in (
        shortening,
        removing,
        pieces(unk_token="<0x00>", fuse_unk=True),
        tokenizers.Tokenizer(tokenizers.models.WordPiece({"[UNK]": 0, "a": 1}, unk_token="[UNK]")),
        tokenizers.Tokenizer(tokenizers.models.WordLevel({"[UNK]": 0, "a": 1}, unk_token="[UNK]")),
    ):
        tokenizer = saved(backend, tmp_path)
        assert tokenizer.longest_token_bytes is None
        assert tokenizer.least_tokens(10**9) == 0
    swallowing = write_model(tmp_path / "swallowing", [{"content": "<|user|>", "rstrip": True}], {})
    assert Tokenizer.load(swallowing).longest_token_bytes is None
    kept = pieces(byte_fallback=True)
    kept.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    assert saved(kept, tmp_path).longest_token_bytes == len("▁the".encode())


def test_composing_shrinks_no_text_further_than_is_said() -> None:
    """Of everything that composes to the same text, the longest: each part as long as it can be written."""

    def size(text: str) -> int:
        return len(text.encode())

    most = 0x30000
    assert not any(map(unicodedata.decomposition, map(chr, range(most, sys.maxunicode + 1)))), "no other is composed"
    every = [chr(code) for code in range(most) if not 0xD800 <= code < 0xE000]
    longest: defaultdict[str, str] = defaultdict(str)
    for character in every:
        apart = unicodedata.normalize("NFD", character)
        if len(apart) == 1:
            longest[apart] = max(longest[apart], character, key=size)
    before, after = NFC_SHRINKS
    compose, found = tokenizers.normalizers.NFC().normalize_str, []
    for character in every:
        apart = unicodedata.normalize("NFD", character)
        written = "".join(longest[part] for part in apart)
        assert size(character) <= size(written), "no other way to write it is longer"
        if written != character:
            assert size(written) * after <= size(unicodedata.normalize("NFC", written)) * before
            assert size(written) * after <= size(compose(written)) * before
            found.append(size(written) * after == size(compose(written)) * before)
    assert any(found), "it is no more than that either"


@given(text=st.text(alphabet="\u1fbe\u0308\u0301\u212ae\u1100\u1161\u11a8 ", max_size=60))
def test_a_tokenizer_that_composes_has_a_bound_too(tmp_path_factory: pytest.TempPathFactory, text: str) -> None:
    """As Qwen's do: none of their prompts was refused untokenized."""
    backend = tokenizers.Tokenizer(tokenizers.models.BPE(BYTE_PIECES | {"\u0390": 256}, [], byte_fallback=True))
    backend.normalizer = tokenizers.normalizers.NFC()
    tokenizer = saved(backend, tmp_path_factory.mktemp("composing"))
    assert tokenizer.longest_token_bytes == 21, "<0x00>, written at its longest"
    assert tokenizer.least_tokens(len(text.encode())) <= tokenizer.count(text)
    assert tokenizer.least_tokens(22) == 2


def test_a_prompt_over_the_limit_is_refused_with_its_count(chat: Tokenizer) -> None:
    text = "one two three " * 20
    count = chat.count(text)
    assert chat.encode(text, count) == chat.encode(text)
    with pytest.raises(ContextTooLong, match=f"The prompt has {count} tokens"):
        chat.encode(text, count - 1)
    messages = [{"role": "user", "content": text}, {"role": "assistant", "content": "<|end|>" + text}]
    count = len(chat.chat_ids(messages))
    assert chat.chat_ids(messages, None, count) == chat.chat_ids(messages)
    with pytest.raises(ContextTooLong):
        chat.chat_ids(messages, None, count - 40)


@given(
    text=st.lists(st.one_of(words, st.sampled_from(["a" * 97, "汉字" * 9, "pneumono" * 12])), max_size=40).map("".join),
    slice_characters=st.integers(1, 300),
)
def test_cutting_a_text_adds_few_ids(chat: Tokenizer, code: Tokenizer, text: str, slice_characters: int) -> None:
    cuts = range(0, len(text), slice_characters)
    for tokenizer in (chat, code):
        in_slices = sum(tokenizer.count(text[cut : cut + slice_characters]) for cut in cuts)
        assert in_slices - tokenizer.count(text) <= CUT_TOKENS / 8 * len(cuts)


@pytest.mark.parametrize("text", ["pneumonoultramicroscopic", "汉字", "a = 1\n", "a"])
def test_a_long_text_that_cannot_fit_is_never_encoded_whole(
    chat: Tokenizer, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    """Encoded whole, a megabyte of one word held up every thread for some 60 ms: memory, not the interpreter lock."""
    text *= 5 * SLICE_CHARACTERS // len(text)
    count = chat.count(text)
    assert chat.encode(text, count) == chat.encode(text), "what fits is not refused for its slices"
    longest, backend = [0], chat._plain

    class Measured:
        def encode_batch_fast(self, texts: list[str], **options: Any) -> Any:
            longest[0] = max(longest[0], *map(len, texts))
            return backend.encode_batch_fast(texts, **options)

    monkeypatch.setattr(chat, "_plain", Measured())
    with pytest.raises(
        ContextTooLong, match=rf"The prompt has {len(text.encode())} bytes, which are at least \d+ tokens"
    ):
        chat.encode(text, count // 2)
    assert longest[0] == SLICE_CHARACTERS


def test_slices_refuse_nothing_that_fits(tmp_path: Path) -> None:
    """Digits by threes, over a vocabulary that lacks some: a cut between them makes other threes of all the rest."""
    alphabet = {character: id_ for id_, character in enumerate(sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet()))}
    threes = tokenizers.Tokenizer(tokenizers.models.BPE(alphabet | {"12": 300, "123": 301}, [("1", "2"), ("12", "3")]))
    cutters = tokenizers.pre_tokenizers
    threes.pre_tokenizer = cutters.Sequence([
        cutters.Split(tokenizers.Regex(r"\p{N}{1,3}"), "isolated"),
        cutters.ByteLevel(add_prefix_space=False, use_regex=False),
    ])  # fmt: skip
    tokenizer = saved(threes, tmp_path)
    for first in ("", "x", "xy"):
        text = first + "123" * (4 * SLICE_CHARACTERS // 3)
        count = tokenizer.count(text)
        assert len(tokenizer.encode(text, count)) == count
        with pytest.raises(ContextTooLong, match="at least"):
            tokenizer.encode(text, count // 2)
    # a token that swallows the spaces behind it
    swallowing = pieces(byte_fallback=True)
    swallowing.add_special_tokens([tokenizers.AddedToken("<|user|>", rstrip=True, normalized=False)])
    (folder := tmp_path / "swallowing").mkdir()
    tokenizer = saved(swallowing, folder)
    text = "<|user|>" + " " * 2 * SLICE_CHARACTERS
    ids = tokenizer._encode(tokenizer._parsing, text, 100)
    assert len(ids) < 100
