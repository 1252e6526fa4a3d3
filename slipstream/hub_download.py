"""The process that downloads one model from the Hugging Face Hub: `python -m slipstream.hub_download NAME FOLDER`.

A separate process can be stopped at any time, and unloads the Hub's library when it ends. It writes one JSON object per
line: `{"bytes": …}` before the download, and `{"error": …}` after a failure.

Environment: HF_TOKEN, HF_ENDPOINT and HF_HUB_OFFLINE, which the library reads.
"""

from __future__ import annotations

import errno
import fnmatch
import hashlib
import json
import shutil
import sys
from pathlib import Path
from typing import Any

from engines.embedded.cores import memory_bytes

WANTED = (
    "config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json",
    "chat_template.jinja", "modules.json", "model.safetensors", "model.safetensors.index.json", "model-*.safetensors",
)  # fmt: skip
POOLING = "1_Pooling/config.json"
"""With `modules.json`, it makes a decoder a model of vectors."""
DONE = ".complete"
"""The file that marks a checked download; it holds the commit."""
SPARE_BYTES = 100_000_000
"""Disk space that a download leaves free."""

UNREACHABLE = "the Hub cannot be reached; the downloaded part is kept, and the next start resumes it"


class Refused(Exception):
    """Raised for a model that cannot be used; the message is one sentence, without a full stop."""


def download(name: str, folder: Path) -> None:
    """Download and check all missing files of a model. Raises Refused, OSError, and the library's errors."""
    from huggingface_hub import HfApi, hf_hub_download

    info = HfApi().model_info(name, files_metadata=True)
    # `*` matches slashes too, and a name with `..` would be written outside the folder.
    top = [one for one in info.siblings or () if "/" not in one.rfilename]
    files = [one for one in top if any(fnmatch.fnmatch(one.rfilename, each) for each in WANTED)]
    files += [one for one in info.siblings or () if one.rfilename == POOLING]
    if not any(one.rfilename.endswith(".safetensors") for one in files):
        raise Refused("it has no safetensors file at its top level; name a model that has one, a folder or a GGUF file")
    size = sum(one.size or 0 for one in files)
    if size > memory_bytes():
        raise Refused(f"it has {size / 1e9:.1f} GB, and this machine has {memory_bytes() / 1e9:.1f} GB of memory")
    free = shutil.disk_usage(folder).free
    missing = size - sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    if missing > free - SPARE_BYTES:
        raise Refused(f"it needs {missing / 1e9:.1f} GB on the disk of {folder}, and {free / 1e9:.1f} GB are free")
    print(json.dumps({"bytes": size}), flush=True)
    for one in files:
        path = Path(hf_hub_download(name, one.rfilename, revision=info.sha, local_dir=folder))
        _check(path, one)
    (folder / DONE).write_text(f"{info.sha}\n")
    shutil.rmtree(folder / ".cache", ignore_errors=True)


def _check(path: Path, expected: Any) -> None:
    with path.open("rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest() if expected.lfs else None
    if path.stat().st_size != expected.size or (expected.lfs and found != expected.lfs.sha256):
        path.unlink()
        raise Refused(f"{path.name} does not have the hash or size of the Hub's list")


def reason(error: Exception, name: str) -> str:
    """The error as one sentence for the user, without a full stop."""
    from huggingface_hub import errors

    if any(kind.__name__ == "TransportError" for kind in type(error).__mro__):  # of the library's HTTP client
        return UNREACHABLE

    match error:
        case Refused():
            return str(error)
        case errors.GatedRepoError():
            return "its authors require that you accept their terms; do so on its page, and set HF_TOKEN"
        case errors.RepositoryNotFoundError():
            return f"the Hub has no model {name}, or HF_TOKEN may not read it"
        case errors.OfflineModeIsEnabled():
            return "HF_HUB_OFFLINE is set, and the model was not downloaded before"
        case errors.HfHubHTTPError():
            return f"the Hub answered {error.response.status_code}"
        case errors.LocalEntryNotFoundError():
            return UNREACHABLE
        case OSError(errno=errno.ENOSPC | errno.EDQUOT):
            return "no space left on device"
        case _:
            return " ".join(f"{type(error).__name__}: {error}".split())[:200]


def main() -> int:
    """Download the model and return the exit status."""
    name, folder = sys.argv[1], Path(sys.argv[2])
    try:
        download(name, folder)
    except Exception as error:
        print(json.dumps({"error": reason(error, name)}), flush=True)
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
