"""Translates a GGUF file's tokenizer and chat templates to Hugging Face's tokenizer.json and tokenizer_config.json."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import msgspec

from contracts.errors import ConfigError
from contracts.printable import excerpt
from engines.gguf.file import GgufFile

JsonObject = dict[str, Any]
MODEL, PRE, TOKENS, KINDS, MERGES = (
    f"tokenizer.ggml.{name}" for name in ("model", "pre", "tokens", "token_type", "merges")
)
TEMPLATE = "tokenizer.chat_template"
CONTROL, USER_DEFINED = 3, 4
"""Token types of control tokens and of texts that the tokenizer never splits."""
SPECIALS = {"bos_token": "bos", "eos_token": "eos", "unk_token": "unknown", "pad_token": "padding"}
END_NAMES = ("eos_token_id", "eot_token_id", "eom_token_id")
END_TEXTS = frozenset(
    {
        "<|im_end|>", "<|endoftext|>", "<|end_of_text|>", "<|eot_id|>", "<|eom_id|>", "<|end|>", "<end_of_turn>",
        "<EOT>", "<|EOT|>", "<｜end▁of▁sentence｜>",
    }
)  # fmt: skip
"""Control tokens that end an answer even if the file's ids omit them, as in llama.cpp: a file may name one of two."""
_LLAMA3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
    r"|\s+(?!\S)|\s+"
)
_QWEN2 = _LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")


class _Cutter(msgspec.Struct, frozen=True):
    """How text is split into words before tokenization, for one value of `tokenizer.ggml.pre`."""

    steps: tuple[JsonObject, ...]
    normalizer: JsonObject | None = None
    whole_words: bool = False
    """Whether a word that is itself a token is encoded without merges."""
    begins: bool = False
    """Whether a begin-of-text token precedes the prompt unless the file disables it."""


def _bytes(*, cut: bool) -> JsonObject:
    return {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": cut}


def _split(pattern: str) -> JsonObject:
    return {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}


_GPT2 = _Cutter((_bytes(cut=True),))
_LLAMA_BPE = _Cutter((_split(_LLAMA3), _bytes(cut=False)), whole_words=True, begins=True)
CUTTERS: Mapping[str, _Cutter] = MappingProxyType(
    {
        "gpt-2": _GPT2,
        "smollm": _Cutter(({"type": "Digits", "individual_digits": True}, _bytes(cut=True))),
        "llama-bpe": _LLAMA_BPE,
        "llama3": _LLAMA_BPE,
        "qwen2": _Cutter((_split(_QWEN2), _bytes(cut=False)), normalizer={"type": "NFC"}),
    }
)


class GgufText(msgspec.Struct, frozen=True):
    """A file's tokenizer and templates."""

    definition: JsonObject
    """The content of tokenizer.json."""
    config: JsonObject
    """The named special tokens."""
    chat_template: str | None
    tool_template: str | None
    end_ids: frozenset[int]


def chat_template_of(path: Path) -> str | None:
    """Read the chat template but not the vocabulary, which takes ten times as long. Raises ConfigError naming an
    unsupported kind of tokenizer."""
    file = GgufFile.read(path)
    _cutter(file)
    return _templates(file)[0]


def template_file(path: Path) -> Path:
    """The file next to a GGUF file whose text replaces its chat template, like `chat_template.jinja` in a folder."""
    return path.with_suffix(".jinja")


def _templates(file: GgufFile) -> tuple[str | None, str | None]:
    """The template for conversations and the one for tools."""
    override = template_file(file.path)
    try:
        return override.read_text(encoding="utf-8-sig"), None
    except FileNotFoundError:
        return file.text(TEMPLATE), file.text(f"{TEMPLATE}.tool_use")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{override}: cannot be read: {error}") from None


def _cutter(file: GgufFile) -> _Cutter:
    path, kind, pre = file.path, file.name(MODEL) or "none", file.name(PRE) or "none"
    if kind != "gpt2":
        raise ConfigError(
            f"{path}: {MODEL} is {kind}, which is not supported; supported: gpt2 (byte-level BPE). Give the model as a "
            "Hugging Face folder"
        )
    cutter = CUTTERS.get(pre)
    if cutter is None:
        raise ConfigError(
            f"{path}: {PRE} is {pre}, which is not supported; supported: {', '.join(CUTTERS)}. Give the model as a "
            "Hugging Face folder"
        )
    return cutter


def text_of(path: Path) -> GgufText:
    """Read tokenizer and templates. Raises ConfigError naming an unsupported kind of tokenizer."""
    file = GgufFile.read(path)
    cutter = _cutter(file)
    chat_template, tool_template = _templates(file)
    tokens, kinds = file.entries(TOKENS, str), file.entries(KINDS, int)
    merges = file.entries(MERGES, str)
    _require_vocabulary(path, tokens, merges)
    if len(kinds) not in (0, len(tokens)):
        raise ConfigError(f"{path}: {len(tokens)} tokens but {len(kinds)} token types; download the file again")
    added = [
        {"id": id_, "content": tokens[id_], "single_word": False, "lstrip": False, "rstrip": False,
         "normalized": False, "special": kind == CONTROL}
        for id_, kind in enumerate(kinds)
        if kind in (CONTROL, USER_DEFINED)
    ]  # fmt: skip
    if empty := [str(token["id"]) for token in added if not token["content"]]:
        raise ConfigError(f"{path}: {TOKENS} holds control token {empty[0]} without a text; download the file again")
    return GgufText(
        definition={
            "version": "1.0",
            "truncation": None,
            "padding": None,
            "added_tokens": added,
            "normalizer": cutter.normalizer,
            "pre_tokenizer": {"type": "Sequence", "pretokenizers": list(cutter.steps)},
            "post_processor": _beginning(file, tokens, cutter),
            "decoder": _bytes(cut=True),
            "model": {
                "type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
                "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False,
                "ignore_merges": cutter.whole_words,
                "vocab": {text: id_ for id_, text in enumerate(tokens)},
                "merges": [merge.split(" ", 1) for merge in merges],
            },
        },
        config={
            name: tokens[id_]
            for name, short in SPECIALS.items()
            if (id_ := _id(file, f"{short}_token_id", tokens)) >= 0
        },
        chat_template=chat_template,
        tool_template=tool_template,
        end_ids=frozenset(id_ for name in END_NAMES if (id_ := _id(file, name, tokens)) >= 0)
        | {token["id"] for token in added if token["special"] and token["content"] in END_TEXTS},
    )  # fmt: skip


def _require_vocabulary(path: Path, tokens: list[str], merges: list[str]) -> None:
    """Raise ConfigError if the `tokenizers` library would panic on the vocabulary or fail without naming the key."""
    if not tokens:
        raise ConfigError(f"{path}: {TOKENS} is empty or missing; download the file again")
    known = set(tokens)
    for merge in merges:
        left, _, right = merge.partition(" ")
        if left not in known or right not in known or left + right not in known:
            raise ConfigError(
                f"{path}: {MERGES} holds {excerpt(merge)!r}, which joins no two tokens to a third; download the file "
                "again"
            )


def _id(file: GgufFile, name: str, tokens: list[str]) -> int:
    """A special token's id; -1 if the file has none."""
    id_: int = file.value(f"tokenizer.ggml.{name}", int, -1)
    if id_ >= len(tokens):
        raise ConfigError(f"{file.path}: tokenizer.ggml.{name} is {id_}; it must be below {len(tokens)}")
    return id_


def _beginning(file: GgufFile, tokens: list[str], cutter: _Cutter) -> JsonObject | None:
    """The post-processor that puts a begin-of-text token before a prompt; None if the model needs no such token."""
    id_ = _id(file, "bos_token_id", tokens)
    if id_ < 0 or not file.value("tokenizer.ggml.add_bos_token", bool, cutter.begins):
        return None
    text = tokens[id_]
    first, second = {"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}
    begin = {"SpecialToken": {"id": text, "type_id": 0}}
    return {
        "type": "TemplateProcessing",
        "single": [begin, first],
        "pair": [begin, first, second],
        "special_tokens": {text: {"id": text, "ids": [id_], "tokens": [text]}},
    }
