"""The adapters that an engine holds, loaded and unloaded while it serves."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable
from pathlib import Path

from contracts.errors import ConfigError, InvalidField, ModelNotFound, Overloaded
from engines.embedded.config import LoraConfig
from engines.embedded.lora.adapter import Adapter
from engines.embedded.lora.load import load_adapter
from engines.embedded.models.llama import Llama


class Adapters:
    """The loaded adapters. The class runs on the event loop and reads files in a thread."""

    def __init__(self, config: LoraConfig, in_use: Callable[[Adapter], bool]) -> None:
        """in_use: whether a request uses an adapter. Raises ConfigError if the root is not a folder's absolute path."""
        root = Path(config.root)
        if config.root and not (root.is_absolute() and root.is_dir()):
            raise ConfigError(
                f"engine.lora.root: must be the absolute path of an existing folder; got {config.root!r}. Leave it "
                "empty to take adapters from anywhere",
                param="engine.lora.root",
            )
        self._config = config
        self._in_use = in_use
        self._loaded: dict[str, Adapter] = {}
        """Adapters by name, in order of use, the latest last."""
        self._leaving = 0
        """Adapters that are no longer offered but still used by requests."""
        self._numbers = itertools.count(1)
        self._changes = asyncio.Lock()

    @property
    def loaded(self) -> tuple[Adapter, ...]:
        """Adapters that a request may name."""
        return tuple(self._loaded.values())

    def get(self, name: str) -> Adapter:
        """The adapter named `name`. Raises ModelNotFound if it is not loaded."""
        adapter = self._loaded.pop(name, None)
        if adapter is None:
            raise ModelNotFound(f"The following requested LoRA adapters are not loaded: {name}", param="lora_path")
        self._loaded[name] = adapter
        return adapter

    async def load(self, model: Llama, name: str, path: str) -> Adapter:
        """Read an adapter and offer it. Loads are sequential. If the maximum is loaded, the least recently requested
        adapter without users is evicted, like in SGLang.

        Raises InvalidField for a name that is already loaded and for an adapter that cannot be served, and Overloaded
        if all are in use.
        """
        async with self._changes:
            if name in self._loaded:
                raise InvalidField(f"The LoRA adapter {name!r} is already loaded.", param="lora_name")
            number, config = next(self._numbers), self._config
            adapter = await asyncio.to_thread(
                load_adapter, model, name, Path(path), config.max_rank, number, config.root
            )
            self._make_room()
            self._loaded[name] = adapter
            return adapter

    def _make_room(self) -> None:
        if len(self._loaded) + self._leaving < self._config.max_loaded:
            return
        unused = next((name for name, adapter in self._loaded.items() if not self._in_use(adapter)), None)
        if unused is None:
            raise Overloaded(
                f"{self._config.max_loaded} LoRA adapters may be loaded (engine.lora.max_loaded), and all are in use."
            )
        del self._loaded[unused]

    async def unload(self, name: str, unused: Callable[[Adapter], Awaitable[None]]) -> Adapter:
        """Stop offering an adapter, and return when no request uses it, for which `unused` waits.

        Raises InvalidField for an adapter that is not loaded.
        """
        if name not in self._loaded:
            raise InvalidField(f"The LoRA adapter {name!r} is not loaded.", param="lora_name")
        adapter = self._loaded.pop(name)
        self._leaving += 1
        try:
            await unused(adapter)
        finally:
            self._leaving -= 1
        return adapter
