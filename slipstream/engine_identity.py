"""Digests of the settings with which a pool's engines start. The nightly evals compare them to detect whether a model's
version has changed since the last night."""

from __future__ import annotations

import hashlib
from pathlib import Path

import msgspec

from slipstream.settings import Settings

_SMALL_BYTES = 1 << 22
"""Files up to this size, such as configurations and templates, are read; of weights, only the size counts."""
_ELSEWHERE = ("host", "port", "metrics", "name", "kv_events")
"""Settings of an engine that do not affect its answers."""


class EngineIdentity:
    """The identity of a pool's engines by the settings of this process."""

    def __init__(self, settings: Settings) -> None:
        self._pools = {pool.name: pool for pool in settings.pools}
        self._defaults = settings.engine

    def of(self, pool_name: str) -> dict[str, str]:
        """Digests: `engine` and `checkpoint` for engines that `up` starts, `launch` if the settings have a launch."""
        pool = self._pools.get(pool_name)
        if pool is None:
            return {}
        found = {}
        if pool.engine is not None:
            settings = [_shaping(pool.engine), _shaping(self._defaults)]
            found["engine"] = _digest(msgspec.json.encode(settings, order="sorted"))
            found["checkpoint"] = _checkpoint(Path(pool.engine.model))
        if pool.launch is not None:
            found["launch"] = _digest(msgspec.json.encode(pool.launch, order="sorted"))
        return {name: value for name, value in found.items() if value}


def _shaping(engine: msgspec.Struct) -> dict[str, object]:
    return {name: getattr(engine, name) for name in engine.__struct_fields__ if name not in _ELSEWHERE}


def _checkpoint(path: Path) -> str:
    """The checkpoint's digest; empty if `path` is no file or folder, but the name of a model from Slipstream."""
    try:
        files = sorted(each for each in (path.iterdir() if path.is_dir() else (path,)) if each.is_file())
        parts = [(each.name, each.stat().st_size, _content(each)) for each in files]
    except OSError:
        return ""
    return _digest(msgspec.json.encode(parts)) if parts else ""


def _content(file: Path) -> str:
    return _digest(file.read_bytes()) if file.stat().st_size <= _SMALL_BYTES else ""


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:12]
