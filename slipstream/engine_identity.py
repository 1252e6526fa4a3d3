"""How the engines of a pool are started, as far as the settings say, in short texts: for telling whether a model's
version has changed between two nights of evals."""

from __future__ import annotations

import hashlib
from pathlib import Path

import msgspec

from slipstream.settings import Settings

_SMALL_BYTES = 1 << 22
"""Files up to this size, such as configurations and templates, are read; of weights their size counts."""
_ELSEWHERE = ("host", "port", "metrics", "name", "kv_events")
"""Settings of an engine that shape no answer."""


class EngineIdentity:
    """By the settings of this process."""

    def __init__(self, settings: Settings) -> None:
        self._pools = {pool.name: pool for pool in settings.pools}
        self._defaults = settings.engine

    def of(self, pool_name: str) -> dict[str, str]:
        """`engine` and `checkpoint` of engines that `up` starts, `launch` of those whose launch the settings hold."""
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
    """Empty where there is nothing to read: the model may be one that comes with Slipstream, by its name."""
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
