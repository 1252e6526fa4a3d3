"""The headers that a collector requires, such as a token. They never appear in the settings or in a message."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from contracts.errors import ConfigError
from telemetry.config import TracingConfig

_VARIABLE = re.compile(r"[A-Z_][A-Z0-9_]*")
_NAME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")


def collector_headers(config: TracingConfig, environ: Mapping[str, str]) -> dict[str, str]:
    """The headers by name. Raises ConfigError, which names the setting, if they are missing or cannot be read."""
    if config.otlp_headers_file and config.otlp_headers_env:
        raise ConfigError("tracing: give one of otlp_headers_file and otlp_headers_env, not both", param="tracing")
    if config.otlp_headers_file:
        return _read("tracing.otlp_headers_file", _text_of(config.otlp_headers_file).splitlines())
    if config.otlp_headers_env:
        return _read("tracing.otlp_headers_env", _variable(config.otlp_headers_env, environ).split(","))
    return {}


def _text_of(path: str) -> str:
    field = "tracing.otlp_headers_file"
    if not path.startswith("/"):
        raise ConfigError(
            f"{field}: must be the absolute path of a file with headers, not a header itself", param=field
        )
    try:
        return Path(path).read_text("ascii")
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else "it must be ASCII"
        raise ConfigError(f"{field}: {path} cannot be read: {why}", param=field) from None


def _variable(name: str, environ: Mapping[str, str]) -> str:
    field = "tracing.otlp_headers_env"
    if not _VARIABLE.fullmatch(name) or name.startswith("SLIPSTREAM_"):
        raise ConfigError(
            f"{field}: must be the name of an environment variable that holds headers (capitals, digits and _, not "
            "beginning with SLIPSTREAM_), not a header itself",
            param=field,
        )
    if not environ.get(name, "").strip():
        raise ConfigError(f"{field}: the environment variable {name} is not set where this process runs", param=field)
    return environ[name]


def _read(field: str, lines: list[str]) -> dict[str, str]:
    headers: dict[str, str] = {}
    for number, line in enumerate(lines, 1):
        name, equals, value = (part.strip() for part in line.partition("="))
        if not (name or value):
            continue
        if not equals or not _NAME.fullmatch(name) or not (value.isascii() and value.isprintable()):
            raise ConfigError(
                f"{field}: header {number} is not a name, `=` and a printable value, as authorization=Bearer …",
                param=field,
            )
        headers[name.lower()] = value
    return headers
