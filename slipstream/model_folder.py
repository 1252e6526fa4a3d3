"""Reads a model's folder or GGUF file for `up`, and refuses one that it cannot serve with a one-line reason."""

from __future__ import annotations

from pathlib import Path

import msgspec

from contracts.errors import ConfigError
from contracts.printable import excerpt
from engines.families import FAMILIES, decoder_fields
from engines.gguf.file import is_gguf
from engines.gguf.model_config import config_of

SHIPPED = Path(__file__).parent.parent / "models"


class _Config(msgspec.Struct, frozen=True):
    architectures: tuple[str, ...] = ()
    max_position_embeddings: int = 0
    dtype: str | None = None
    torch_dtype: str | None = None
    """The former name of `dtype`."""


class ModelFolder(msgspec.Struct, frozen=True):
    """A folder, or a GGUF file, that an embedded engine can serve."""

    path: Path
    name: str
    context_tokens: int
    dtype: str
    """The number format of its weights: `bfloat16`, `float16` or `float32`."""


def read(folder: str | None, shipped: str, setting: str, *, needs_chat_template: bool) -> ModelFolder:
    """The folder or file of the setting, or the `shipped` one if it is not set. Raises ConfigError."""
    return read_path(SHIPPED / shipped if folder is None else find(folder), setting, needs_chat_template)


def find(name: str) -> Path:
    """The folder at this path or, if it does not exist, the model of this name that comes with Slipstream."""
    path, shipped = Path(name), SHIPPED / name
    return shipped if path.name == name and not path.exists() and shipped.is_dir() else path


def read_path(folder: Path, setting: str, needs_chat_template: bool) -> ModelFolder:
    """The folder or file at this path. setting: its name, for messages. Raises ConfigError."""
    path = folder.expanduser().resolve()
    if path.is_file() and is_gguf(path):
        return _read_file(path, setting, needs_chat_template)
    if not path.is_dir():
        raise ConfigError(
            f"{setting}: {path} is not a folder and not a GGUF file; give a Hugging Face folder, "
            "a .gguf file, or a name on the Hub, such as Qwen/Qwen3-0.6B",
            param=setting,
        )
    for needed in ("config.json", "tokenizer.json", "*.safetensors"):
        if not any(path.glob(needed)):
            raise ConfigError(
                f"{setting}: {path} has no {needed}; a Hugging Face folder has config.json, safetensors and "
                "tokenizer.json",
                param=setting,
            )
    if needs_chat_template and not _has_chat_template(path):
        raise ConfigError(
            f"{setting}: {path} has no chat template (chat_template in tokenizer_config.json, or chat_template.jinja); "
            "choose a model made for chat",
            param=setting,
        )
    try:
        raw = msgspec.json.decode((path / "config.json").read_bytes(), type=dict)
        config = msgspec.convert(raw, _Config)
    except (OSError, msgspec.DecodeError, msgspec.ValidationError) as error:
        raise ConfigError(
            f"{setting}: {path / 'config.json'} cannot be read ({error}); give a complete model folder", param=setting
        ) from None
    family = next((FAMILIES[name] for name in config.architectures if name in FAMILIES), None)
    if family is None:
        found = excerpt(", ".join(config.architectures) or "none")
        raise ConfigError(
            f"{setting}: {path} has architecture {found}; the embedded engine serves {', '.join(FAMILIES)}",
            param=setting,
        )
    context_tokens = decoder_fields(raw, family).get("max_position_embeddings")
    if not isinstance(context_tokens, int) or context_tokens < 1:
        raise ConfigError(f"{setting}: {path / 'config.json'} has no max_position_embeddings", param=setting)
    dtype = config.dtype or config.torch_dtype or "float32"
    return ModelFolder(path, path.name, context_tokens, dtype)


def _read_file(path: Path, setting: str, needs_chat_template: bool) -> ModelFolder:
    # Imported here: other processes that check settings read no model file.
    from engines.gguf.text_files import chat_template_of

    try:
        config = msgspec.convert(config_of(path), _Config)
        template = chat_template_of(path)
    except ConfigError as error:
        raise ConfigError(f"{setting}: {error.message}", param=setting) from None
    if needs_chat_template and template is None:
        raise ConfigError(
            f"{setting}: {path} has no chat template (tokenizer.chat_template); choose a model made for chat",
            param=setting,
        )
    if config.max_position_embeddings < 1:
        raise ConfigError(f"{setting}: {path}: context_length must be at least 1", param=setting)
    return ModelFolder(path, path.stem, config.max_position_embeddings, config.dtype or "float32")


def _has_chat_template(path: Path) -> bool:
    if (path / "chat_template.jinja").is_file():
        return True
    try:
        return "chat_template" in msgspec.json.decode((path / "tokenizer_config.json").read_bytes(), type=dict)
    except (OSError, msgspec.DecodeError):
        return False
