"""Reads the API key from initializationOptions, a file or the environment. No message and no log contains it."""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping
from pathlib import Path
from typing import Any

from contracts.errors import ConfigError

API_KEY_VARIABLE = "SLIPSTREAM_API_KEY"


def take_key(options: MutableMapping[str, Any], key_file: Path | None, environ: Mapping[str, str]) -> str:
    """The key, removed from the editor's options; "" if there is none, which the gateway then reports.

    `api_key` or `api_key_file` of the options, else key_file (the command line's), else SLIPSTREAM_API_KEY.
    Raises ConfigError, without the key, if both options are given, the file cannot be read, or it holds no key.
    """
    value, path = options.pop("api_key", None), options.pop("api_key_file", None)
    if value is not None and path is not None:
        raise ConfigError("api_key: api_key_file is given too; remove one of them", param="api_key")
    if value is not None:
        return _checked(value, "api_key")
    if path is not None:
        if not isinstance(path, str):
            raise ConfigError(f"api_key_file: expected a path, got {type(path).__name__}", param="api_key_file")
        key_file = Path(path)
    if key_file is not None:
        return _checked(_read(key_file.expanduser()), "api_key_file")
    return _checked(environ.get(API_KEY_VARIABLE, ""), API_KEY_VARIABLE)


def _read(path: Path) -> str:
    try:
        text = path.read_text(encoding="ascii", errors="replace").strip()
    except OSError as error:
        raise ConfigError(f"api_key_file: {path}: {error.strerror}", param="api_key_file") from None
    if not text:
        raise ConfigError(f"api_key_file: {path} is empty; write the key into it", param="api_key_file")
    return text


def _checked(key: object, where: str) -> str:
    """The key as a header's value. A client that refused an invalid header would quote the key."""
    if not isinstance(key, str) or not all("!" <= character <= "~" for character in key):
        raise ConfigError(f"{where}: not an API key, which is one word of printable ASCII", param=where)
    return key
