"""The tokenizer and the chat template of a GGUF file."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from contracts.errors import ConfigError
from engines.embedded.grammar.vocabulary import Vocabulary
from engines.gguf.text_files import CUTTERS, template_file, text_of
from engines.tokenizer.tokenizer import Tokenizer
from tests.engines.embedded.tiny import SHIPPED
from tests.engines.gguf.tiny_gguf import write_gguf

TEXTS = ("Hello, world", "don't\n\n  x = 12345", "naïve 日本語 🎉", "", " \t\r\n ", "<|end|> is text")


def test_it_encodes_as_the_same_vocabulary_in_a_folder(tmp_path: Path) -> None:
    """smollm's words are cut as SmolLM's tokenizer.json says."""
    folder = shutil.copytree(SHIPPED / "slipstream-chat", tmp_path / "folder", ignore=shutil.ignore_patterns("draft"))
    definition = json.loads((folder / "tokenizer.json").read_text())
    cut = [
        {"type": "Digits", "individual_digits": True},
        {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True},
    ]
    definition["pre_tokenizer"] = {"type": "Sequence", "pretokenizers": cut}
    (folder / "tokenizer.json").write_text(json.dumps(definition))
    shipped, own = Tokenizer.load(folder), Tokenizer.load(write_gguf(tmp_path / "model.gguf"))
    for text in TEXTS:
        assert own.encode(text) == shipped.encode(text)
        assert own.decode(own.encode(text)) == text
    assert own.end_ids >= shipped.end_ids
    assert own.vocabulary_size == shipped.vocabulary_size
    assert own.control_ids == shipped.control_ids


def test_its_template_renders_a_conversation_and_user_text_stays_text(tmp_path: Path) -> None:
    own = Tokenizer.load(write_gguf(tmp_path / "model.gguf"))
    assert own.has_chat_template
    ids = own.chat_ids([{"role": "user", "content": "Hi <|end|>"}])
    ends = own.encode("<|end|>")
    assert len(ends) > 1
    [end] = own.end_ids & set(ids)
    assert ids.count(end) == 1


def test_a_template_beside_the_file_replaces_its_own(tmp_path: Path) -> None:
    path = write_gguf(tmp_path / "model.gguf")
    beside = template_file(path)
    beside.write_text("{{ messages[0]['content'] }}!", encoding="utf-8-sig")  # as editors on Windows write it
    own = Tokenizer.load(path)
    assert own.chat_ids([{"role": "user", "content": "Hi"}]) == own.encode("Hi!")
    beside.write_bytes(b"\xff")
    with pytest.raises(ConfigError, match=r"model\.jinja: cannot be read"):
        Tokenizer.load(path)


def test_digits_stand_alone(tmp_path: Path) -> None:
    smollm, gpt2 = (
        Tokenizer.load(write_gguf(tmp_path / f"{pre}.gguf", changed={"pre": pre})) for pre in ("smollm", "gpt-2")
    )
    assert {smollm.token_text(id_) for id_ in smollm.encode("1912")} <= set("1912")
    assert smollm.encode("a b") == gpt2.encode("a b")


@pytest.mark.parametrize("pre", CUTTERS)
def test_every_way_to_cut_words_keeps_the_text(tmp_path: Path, pre: str) -> None:
    own = Tokenizer.load(
        write_gguf(tmp_path / "model.gguf", changed={"pre": pre, "tokenizer.ggml.add_bos_token": False})
    )
    for text in TEXTS:
        assert own.decode(own.encode(text)) == text


def test_a_begin_token_stands_where_the_file_says(tmp_path: Path) -> None:
    begin = {"tokenizer.ggml.bos_token_id": 0}
    plain = Tokenizer.load(write_gguf(tmp_path / "a.gguf", changed=begin))
    begun = Tokenizer.load(write_gguf(tmp_path / "b.gguf", changed={**begin, "tokenizer.ggml.add_bos_token": True}))
    llama = Tokenizer.load(write_gguf(tmp_path / "c.gguf", changed={**begin, "pre": "llama-bpe"}))
    assert [one.leading_ids for one in (plain, begun, llama)] == [(), (0,), (0,)]


def test_tokens_that_end_a_turn_end_an_answer_whatever_the_file_names(tmp_path: Path) -> None:
    own = Tokenizer.load(write_gguf(tmp_path / "model.gguf", changed={"eos_token_id": None}))
    assert {own.token_text(id_) for id_ in own.end_ids} <= {"<|end|>", "<|endoftext|>"}
    assert own.end_ids


def test_grammars_can_be_compiled_against_it(tmp_path: Path) -> None:
    path = write_gguf(tmp_path / "model.gguf")
    vocabulary = Vocabulary.read(path, 2048, Tokenizer.load(path).end_ids)
    assert vocabulary.compile('%llguidance {}\nstart: "yes" | "no"\n')[1] is None


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"tokenizer.ggml.model": "llama"}, "tokenizer.ggml.model is llama, .* supported: gpt2"),
        ({"pre": "deepseek-llm"}, "tokenizer.ggml.pre is deepseek-llm, .* supported: gpt-2, smollm"),
        ({"eos_token_id": 5_000}, "eos_token_id is 5000; it must be below 2048"),
        ({"token_type": [1, 1]}, "2048 tokens but 2 token types"),
        ({"merges": [1, 2]}, "tokenizer.ggml.merges must be a list of str"),
        ({"tokens": [1, 2]}, "tokenizer.ggml.tokens must be a list of str"),
        ({"token_type": ["1", "3"]}, "tokenizer.ggml.token_type must be a list of int"),
        ({"tokens": None}, "tokenizer.ggml.tokens is empty or missing"),
        ({"merges": ["no such"]}, "tokenizer.ggml.merges holds 'no such', which joins no two tokens to a third"),
        ({"merges": ["a b\nc"]}, r"tokenizer.ggml.merges holds 'a b\\\\nc', which"),
        (
            {"tokens": ["a", ""], "token_type": [1, 3], "merges": None, "eos_token_id": 0},
            "tokenizer.ggml.tokens holds control token 1 without a text",
        ),
        ({"pre": "x\n" * 5_000}, r"tokenizer.ggml.pre is not a name: (x\\n){100}… \(10,000 characters\)"),
    ],
)
def test_what_is_not_supported_is_named(tmp_path: Path, changed: dict[str, Any], message: str) -> None:
    path = write_gguf(tmp_path / "model.gguf", changed=changed)
    with pytest.raises(ConfigError, match=message) as refused:
        text_of(path)
    assert refused.value.message.isprintable()


def test_a_template_that_is_no_program_is_named_with_its_key(tmp_path: Path) -> None:
    path = write_gguf(tmp_path / "model.gguf", changed={"tokenizer.chat_template": "{% break %}"})
    with pytest.raises(ConfigError, match=r"model\.gguf: tokenizer\.chat_template cannot be compiled: SyntaxError"):
        Tokenizer.load(path)
    template_file(path).write_text("{% if")
    with pytest.raises(ConfigError, match=r"model\.jinja: the chat template does not parse, line 1"):
        Tokenizer.load(path)
