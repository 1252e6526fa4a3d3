"""The language server's settings: the command line's, overridden by the editor's initializationOptions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any
from urllib.parse import urlsplit

import msgspec
from msgspec import Meta

from contracts import settings
from contracts.base_url import base_url
from contracts.errors import ConfigError
from contracts.fill_in_the_middle import MinConfidence

EDITOR = "initializationOptions"
DEFAULT_URL = "http://127.0.0.1:8000"


class LanguageServerConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What an editor may set in initializationOptions, beside `api_key` and `api_key_file`."""

    url: str = DEFAULT_URL
    """The gateway, without `/v1`."""
    model: str = ""
    """Empty: the first autocomplete model that the key may use, which the gateway knows."""
    debounce_ms: Annotated[int, Meta(ge=0, le=10_000)] = 75
    """A request waits so long for another keystroke. One that the user asks for does not wait."""
    max_tokens: Annotated[int, Meta(ge=1, le=4_096)] = 128
    """Longest completion."""
    min_confidence: MinConfidence | None = None
    """A completion whose tokens' probabilities have a lower geometric mean is not shown; 0: all are. None: as the
    gateway's model is set."""
    # together less than MAX_COMPARED in gateway/wire/gap.py: the gateway neither continues nor shares longer gaps
    prefix_chars: Annotated[int, Meta(ge=1, le=2_000_000)] = 96_000
    """Most text before the cursor that is sent; what of it the model is shown is the gateway's to say."""
    suffix_chars: Annotated[int, Meta(ge=0, le=2_000_000)] = 32_000
    """Most text after the cursor that is sent."""
    kept_answers: Annotated[int, Meta(ge=0, le=10_000)] = 200
    """Answers that are remembered; those asked for longest ago are forgotten."""
    timeout_s: Annotated[float, Meta(gt=0, le=600)] = 30.0
    """Longest wait for an answer."""


def load(command_line: Mapping[str, Any], options: object) -> LanguageServerConfig:
    """Both merged; the editor's settings win. options: the initializationOptions without the key.

    Raises ConfigError, which names the setting and the allowed values.
    """
    if options is None:
        options = {}
    if not isinstance(options, Mapping):
        raise ConfigError(f"{EDITOR}: expected an object of settings, got {type(options).__name__}")
    config = settings.load(LanguageServerConfig, None, {}, {**command_line, **options}, overrides_from=EDITOR)
    return msgspec.structs.replace(config, url=_checked(config.url))


def _checked(url: str) -> str:
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment:
        raise ConfigError(f"url: {url!r} is not the address of a gateway; write one such as {DEFAULT_URL}", param="url")
    if parts.username is not None:
        raise ConfigError("url: holds a user name; the key goes to api_key_file or SLIPSTREAM_API_KEY", param="url")
    return base_url(url)
