"""Where the API key comes from: initializationOptions, a file, the environment. It is in no message and no log."""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping
from pathlib import Path
from typing import Any

from contracts.errors import ConfigError

API_KEY_VARIABLE = "SLIPSTREAM_API_KEY"


def take_key(options: MutableMapping[str, Any], key_file: Path | None, environ: Mapping[str, str]) -> str:
    """The key, removed from the editor's options; "" when there is none, which the gateway then says.

    `api_key` or `api_key_file` of the options, else key_file (the command line's), else SLIPSTREAM_API_KEY.
    Raises ConfigError, without the key, when both options are given, the file cannot be read, or it holds no key.
    """
    given, named = options.pop("api_key", None), options.pop("api_key_file", None)
    if given is not None and named is not None:
        raise ConfigError("api_key: api_key_file is given too; remove one of them", param="api_key")
    if given is not None:
        return _checked(given, "api_key")
    if named is not None:
        if not isinstance(named, str):
            raise ConfigError(f"api_key_file: expected a path, got {type(named).__name__}", param="api_key_file")
        key_file = Path(named)
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
    """A header's value: what is not one would be quoted by whoever refuses to send it."""
    if not isinstance(key, str) or not all("!" <= character <= "~" for character in key):
        raise ConfigError(f"{where}: not an API key, which is one word of printable ASCII", param=where)
    return key
