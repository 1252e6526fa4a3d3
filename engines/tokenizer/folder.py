"""Reads the tokenizer of a Hugging Face model folder or a GGUF file. The error for a broken file names it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from contracts.errors import ConfigError
from engines.gguf.file import is_gguf

JsonObject = dict[str, Any]


class TokenizerFolder(msgspec.Struct, frozen=True):
    """The parts of a model folder that concern text."""

    path: Path
    definition: JsonObject
    """tokenizer.json"""
    config: JsonObject
    """tokenizer_config.json, over special_tokens_map.json; empty if neither exists."""
    chat_template: str | None
    tool_template: str | None
    """The template named `tool_use`, if the folder has several templates."""
    end_ids: frozenset[int]
    """The ids that end a generation, from generation_config.json, else config.json."""

    @classmethod
    def read(cls, path: Path) -> TokenizerFolder:
        """Read the folder or the GGUF file. Raises ConfigError, which names the missing or broken file."""
        if is_gguf(path):
            # imported here, because most processes read no GGUF file
            from engines.gguf.text_files import text_of

            text = text_of(path)
            return cls(path, text.definition, text.config, text.chat_template, text.tool_template, text.end_ids)
        if not path.is_dir():
            raise ConfigError(f"{path}: no such model folder; give a folder that holds tokenizer.json")
        definition = _read_json(path / "tokenizer.json")
        if definition is None:
            raise ConfigError(
                f"{path / 'tokenizer.json'}: file not found; a model folder needs a tokenizer in the Hugging Face "
                "`tokenizers` format (`save_pretrained` of a fast tokenizer writes it)"
            )
        config = {
            **(_read_json(path / "special_tokens_map.json") or {}),
            **(_read_json(path / "tokenizer_config.json") or {}),
        }
        chat_template, tool_template = _templates(path, config)
        _require_texts(path, definition)
        return cls(path, definition, config, chat_template, tool_template, _end_ids(path))

    @property
    def tokenizer_origin(self) -> str:
        """The tokenizer's file and key, for errors."""
        return f"{self.path}: tokenizer.ggml" if is_gguf(self.path) else str(self.path / "tokenizer.json")

    @property
    def template_origin(self) -> str:
        """The chat template's file and key, for errors."""
        stored = is_gguf(self.path)
        own = self.path.with_suffix(".jinja") if stored else self.path / "chat_template.jinja"
        if own.exists():
            return f"{own}: the chat template"
        return f"{self.path}: tokenizer.chat_template" if stored else f"{self.path}: chat_template"

    def special(self, name: str) -> str | None:
        """The text of a named special token such as `bos_token`, or None."""
        value = self.config.get(name)
        if isinstance(value, dict):
            value = value.get("content")
        return value if isinstance(value, str) else None


def _require_texts(path: Path, definition: JsonObject) -> None:
    added = definition.get("added_tokens") or []
    if not all(isinstance(token, dict) and token.get("content") for token in added):
        raise ConfigError(f"{path / 'tokenizer.json'}: added_tokens holds a token without a text")


def _read_json(path: Path) -> JsonObject | None:
    try:
        content = msgspec.json.decode(path.read_bytes())
    except FileNotFoundError:
        return None
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}") from None
    except msgspec.DecodeError as error:
        raise ConfigError(f"{path}: not valid JSON: {error}") from None
    if not isinstance(content, dict):
        raise ConfigError(f"{path}: must hold a JSON object; got {type(content).__name__}")
    return content


def _templates(path: Path, config: JsonObject) -> tuple[str | None, str | None]:
    """The default template and the one for tools. chat_template.jinja takes precedence over the config's field."""
    source = path / "chat_template.jinja"
    if source.exists():
        try:
            return source.read_text(), None
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"{source}: cannot be read: {error}") from None
    value = config.get("chat_template")
    if value is None or isinstance(value, str):
        return value, None
    try:
        named = {entry["name"]: entry["template"] for entry in value}
    except (TypeError, KeyError):
        raise ConfigError(
            f"{path / 'tokenizer_config.json'}: chat_template must be a string, or a list of named templates"
        ) from None
    return named.get("default"), named.get("tool_use")


def _end_ids(path: Path) -> frozenset[int]:
    for name in ("generation_config.json", "config.json"):
        value = (_read_json(path / name) or {}).get("eos_token_id")
        if value is None:
            continue
        ids = value if isinstance(value, list) else [value]
        if not all(isinstance(id_, int) for id_ in ids):
            raise ConfigError(f"{path / name}: eos_token_id must be an integer or a list of integers; got {value!r}")
        return frozenset(ids)
    return frozenset()
