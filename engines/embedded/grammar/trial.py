"""Tries a grammar in a process of its own before it is compiled in the engine's.

llguidance's limits bound a grammar's size and each step, not the time and memory that making its lexer takes: 3 kB of
intersected patterns take hours, and nothing ends a thread. A process is ended by the kernel, also when it is deep in
foreign code, and also when the engine is gone.
"""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import subprocess
import sys
import weakref
from pathlib import Path

import msgspec
from llguidance import LLMatcher, LLParserLimits, LLTokenizer

from engines.embedded.grammar.rehearsal import rehearse
from engines.tokenizer.control import gives_text
from engines.tokenizer.folder import TokenizerFolder

MEMORY_BYTES = 2 << 30
"""For the process; a vocabulary of 256,000 takes a tenth of it."""
REASON_CHARACTERS = 1_000


class Vocabulary(msgspec.Struct, frozen=True):
    """What a grammar is compiled against. size: width of the model's logits. end_ids: may follow a complete text."""

    folder: str
    size: int
    end_ids: list[int]

    def read(self) -> LLTokenizer:
        """In llguidance's form."""
        definition = TokenizerFolder.read(Path(self.folder)).definition
        added = [{**token, "special": not gives_text(token)} for token in definition.get("added_tokens") or []]
        marked = msgspec.json.encode({**definition, "added_tokens": added}).decode()
        return LLTokenizer(marked, n_vocab=self.size, eos_token=self.end_ids or None)


class Verdict(msgspec.Struct, frozen=True):
    """What was found against a grammar; all empty: nothing."""

    wrong: str = ""
    """It cannot be compiled."""
    limit: str = ""
    """It runs into this limit at its beginning."""


class TrialFailed(Exception):
    """The process ended without a verdict, for no reason that lies in the grammar."""


class Trial:
    """The process, begun anew after each grammar that ended it. Blocking: for one thread at a time."""

    def __init__(self, vocabulary: Vocabulary, timeout_s: float) -> None:
        self._arguments = msgspec.json.encode(vocabulary).decode()
        self._timeout_s = timeout_s
        self._child: subprocess.Popen[bytes] | None = None

    def judge(self, grammar: str) -> Verdict:
        """The verdict on one grammar, within the time and a new process' start. Raises TrialFailed."""
        child = self._child or self._start()
        assert child.stdin is not None
        assert child.stdout is not None
        with contextlib.suppress(BrokenPipeError):
            child.stdin.write(msgspec.json.encode(grammar) + b"\n")
            child.stdin.flush()
        answer = child.stdout.readline()
        if answer.endswith(b"\n"):
            return msgspec.json.decode(answer, type=Verdict)
        status = self.close()
        if status == -signal.SIGALRM:
            limit = f"it takes more than {self._timeout_s:g} s to compile"
        elif status in (-signal.SIGABRT, -signal.SIGKILL, -signal.SIGSEGV):
            limit = "it takes more memory than a grammar may"
        else:
            raise TrialFailed(f"the process that tries grammars ended with status {status}")
        self._start()  # meanwhile: the next grammar need not wait for all of it
        return Verdict(limit=limit)

    def close(self) -> int | None:
        """End the process, if there is one; its status."""
        child, self._child = self._child, None
        if child is None:
            return None
        self._ending.detach()
        return _end(child)

    def _start(self) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "engines.embedded.grammar.trial", self._arguments, str(self._timeout_s)]
        environ = {**os.environ, "OPENBLAS_NUM_THREADS": "1", "RAYON_NUM_THREADS": "1"}
        child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environ)
        self._child, self._ending = child, weakref.finalize(self, _end, child)
        return child


def _end(child: subprocess.Popen[bytes]) -> int:
    """It ends by itself when nothing more can come, or at its alarm."""
    child.communicate()
    return child.returncode


def limits() -> LLParserLimits:
    """A step of a guided sequence may take some milliseconds, and its lexer some tens of megabytes, at most."""
    return LLParserLimits(
        step_lexer_fuel=100_000,
        step_max_items=30_000,
        max_lexer_states=20_000,
        max_grammar_size=100_000,
        verbose_errors=False,
    )


def _judged(tokens: LLTokenizer, grammar: str) -> Verdict:
    matcher = LLMatcher(tokens, grammar, log_level=0, limits=limits())
    if matcher.is_error():
        return Verdict(wrong=_line(matcher.get_error()))
    limit = rehearse(matcher)
    return Verdict() if limit is None else Verdict(limit=_line(limit))


def _line(reason: str) -> str:
    return " ".join(reason.split())[:REASON_CHARACTERS] or "no reason is known"


def _serve(vocabulary: Vocabulary, timeout_s: float) -> None:
    """A grammar a line in, a verdict a line out, until nothing more comes."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the engine, which drains
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    tokens = vocabulary.read()
    resource.setrlimit(resource.RLIMIT_DATA, (MEMORY_BYTES, MEMORY_BYTES))
    for line in sys.stdin.buffer:
        signal.setitimer(signal.ITIMER_REAL, timeout_s)
        verdict = _judged(tokens, msgspec.json.decode(line, type=str))
        signal.setitimer(signal.ITIMER_REAL, 0)
        sys.stdout.buffer.write(msgspec.json.encode(verdict) + b"\n")
        sys.stdout.buffer.flush()


if __name__ == "__main__":
    _serve(msgspec.json.decode(sys.argv[1], type=Vocabulary), float(sys.argv[2]))
