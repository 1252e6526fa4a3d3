"""Replaces the settings' names of models on the Hugging Face Hub by folders, downloaded once into the data folder."""

from __future__ import annotations

import asyncio
import contextlib
import re
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import msgspec

from contracts.errors import ConfigError
from infra.local.private import claim_folder
from slipstream.hub_download import DONE, UNREACHABLE
from slipstream.settings import Settings

NAME = re.compile(r"[\w-][\w.-]*/[\w-][\w.-]*")
SAY_EVERY_S = 5.0
LOCAL = ("chat_model", "code_model")
Say = Callable[[str], None]


class _Line(msgspec.Struct, frozen=True):
    bytes: int = 0
    error: str | None = None


def is_hub_name(name: str | None) -> bool:
    """Whether a setting names a model of the Hub, such as `Qwen/Qwen3-0.6B`, and not an existing path."""
    return name is not None and NAME.fullmatch(name) is not None and not Path(name).exists()


def names_hub_model(settings: Settings) -> bool:
    """Whether `with_hub_models` replaces a name."""
    engines = [pool.engine.model for pool in settings.pools if pool.engine is not None]
    return any(map(is_hub_name, [*(getattr(settings.local, field) for field in LOCAL), *engines]))


async def with_hub_models(settings: Settings, models: Path, say: Say) -> Settings:
    """The settings with folders in place of names. models: the folder for downloads. say: prints progress.

    Raises ConfigError with a one-line reason for a model that cannot be downloaded.
    """
    local = settings.local
    for field in LOCAL:
        name = getattr(local, field)
        if is_hub_name(name):
            folder = await _fetched(name, models, f"local.{field}", say)
            local = msgspec.structs.replace(local, **{field: str(folder)})
    pools = []
    for pool in settings.pools:
        if pool.engine is not None and is_hub_name(pool.engine.model):
            folder = await _fetched(pool.engine.model, models, f"pools.{pool.name}.engine.model", say)
            engine = msgspec.structs.replace(pool.engine, model=str(folder))
            pool = msgspec.structs.replace(pool, engine=engine)
        pools.append(pool)
    return msgspec.structs.replace(settings, local=local, pools=tuple(pools))


async def _fetched(name: str, models: Path, setting: str, say: Say) -> Path:
    folder = models / "hub" / name
    if (folder / DONE).is_file():
        return folder
    existed = folder.exists()
    claim_folder(folder)
    failure = await _download(name, folder, say)
    if failure is None:
        return folder
    arrived = any(path.is_file() for path in folder.rglob("*.incomplete"))
    if not existed and not (arrived and failure == UNREACHABLE):
        shutil.rmtree(folder, ignore_errors=True)
        for parent in (folder.parent, folder.parent.parent):
            with contextlib.suppress(OSError):  # it contains other models
                parent.rmdir()
    raise ConfigError(f"{setting}: {name} cannot be downloaded: {failure}", param=setting)


async def _download(name: str, folder: Path, say: Say) -> str | None:
    """Download the model; return the reason if it failed, else None."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "slipstream.hub_download", name, str(folder),
        stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL,
    )  # fmt: skip
    assert process.stdout is not None
    progress: asyncio.Task[None] | None = None
    failure: str | None = "the download process ended without a reason"
    try:
        async for line in process.stdout:
            report = msgspec.json.decode(line, type=_Line)
            if report.error is not None:
                failure = report.error
            elif progress is None:
                say(f"fetching {name} ({report.bytes / 1e6:,.0f} MB, once) from the Hugging Face Hub")
                progress = asyncio.create_task(_show(folder, report.bytes, say))
        return None if await process.wait() == 0 else failure
    finally:
        if progress is not None:
            progress.cancel()
        if process.returncode is None:
            process.kill()
            await process.wait()


async def _show(folder: Path, total: int, say: Say) -> None:
    while True:
        await asyncio.sleep(SAY_EVERY_S)  # another process writes the files
        say(f"{'':<24}{await asyncio.to_thread(_size, folder) / 1e6:,.0f} of {total / 1e6:,.0f} MB")


def _size(folder: Path) -> int:
    total = 0
    for path in folder.rglob("*"):
        with contextlib.suppress(OSError):  # the library moves files
            total += path.stat().st_size if path.is_file() else 0
    return total
