"""Makes the trace of edits from a git repository's history.

    python -m benchmarks.keystroke_sessions.record [--edits 48] [--until COMMIT]

Of every Python file the one commit is taken that types the most characters between `--least` and `--most`, while the
file has 4,000 to 8,000 of the code model's tokens before and after it; of the files, those that a seed draws.
"""

from __future__ import annotations

import argparse
import lzma
import random
import subprocess
from collections import defaultdict
from pathlib import Path

import msgspec

from benchmarks.keystroke_sessions.edits import TRACE, Edit, places
from engines.tokenizer.tokenizer import Tokenizer

TOKENIZER = "models/slipstream-code"
TOKENS = range(4_000, 8_000)
CHARACTERS = range(10_000, 28_000)
"""The length of a file that can have `TOKENS` tokens: only such files are tokenized."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--edits", type=int, default=48)
    parser.add_argument("--until", default="HEAD", help="the newest commit that is looked at")
    parser.add_argument("--least", type=int, default=300, help="characters typed")
    parser.add_argument("--most", type=int, default=3_000)
    arguments = parser.parse_args()
    found = sorted(edits(arguments.until, arguments.least, arguments.most), key=lambda edit: edit.path)
    chosen = random.Random(1).sample(found, min(arguments.edits, len(found)))
    with lzma.open(TRACE, "wb", preset=9 | lzma.PRESET_EXTREME) as file:
        file.writelines(msgspec.json.encode(edit) + b"\n" for edit in chosen)
    print(f"{len(chosen)} of {len(found)} edits, {TRACE.stat().st_size:,} bytes: {TRACE}")


def edits(until: str, least: int, most: int) -> list[Edit]:
    """The longest edit of each file that has a fitting one."""
    tokenizer = Tokenizer.load(TOKENIZER)
    best: defaultdict[str, list[tuple[int, Edit]]] = defaultdict(list)
    for commit, path in modified(until):
        try:
            edit = Edit(commit, path, git("show", f"{commit}~:{path}"), git("show", f"{commit}:{path}"))
        except subprocess.CalledProcessError:  # renamed
            continue
        if not all(len(text) in CHARACTERS for text in (edit.before, edit.after)):
            continue
        typed = sum(len(middle) for _, middle, _ in places(edit))
        if least <= typed <= most and all(tokenizer.count(text) in TOKENS for text in (edit.before, edit.after)):
            best[path].append((typed, edit))
    return [max(some, key=lambda one: (one[0], one[1].commit))[1] for some in best.values()]


def modified(until: str) -> list[tuple[str, str]]:
    """(commit, path) of every Python file that a commit modified."""
    found, commit = [], ""
    for line in git("log", "--format=%H", "--name-only", "--diff-filter=M", until, "--", "*.py").splitlines():
        if line.endswith(".py"):
            found.append((commit, line))
        elif line:
            commit = line
    return found


def git(*arguments: str) -> str:
    return subprocess.run(["git", *arguments], capture_output=True, text=True, check=True, cwd=Path.cwd()).stdout


if __name__ == "__main__":
    main()
