"""Compiles grammars off the event loop, for one organization after another, and caches the newest of each.

Plain schemas are compiled at once. All other grammars are first tried in a process that is killed at a deadline. Only
those that pass are compiled here, because a compilation here cannot be interrupted.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from contracts.errors import ConfigError, InvalidField, Overloaded
from engines.embedded.config import GrammarConfig
from engines.embedded.freed_memory import release
from engines.embedded.grammar.guide import Guide
from engines.embedded.grammar.guide_cache import GuideCache
from engines.embedded.grammar.spec import GrammarSpec
from engines.embedded.grammar.trial_process import TrialProcess
from engines.embedded.grammar.turns import Turns
from engines.embedded.grammar.vocabulary import KeptDefinition, Vocabulary

logger = logging.getLogger(__name__)


class GrammarCompiler:
    """The grammars of one model. It runs on the event loop, and starts threads and processes when first needed."""

    def __init__(self, folder: Path, width: int, end_ids: frozenset[int], config: GrammarConfig) -> None:
        """width: number of the model's logits. end_ids: ids that may follow a complete text."""
        self._definition = KeptDefinition(folder)
        self._width = width
        self._end_ids = end_ids
        self._config = config
        self._guides = GuideCache(config.kept)
        processes = config.compile_processes
        self._plain_turns = Turns(1, config.compiles_waiting, config.compile_wait_s)
        self._tried_turns = Turns(processes, config.compiles_waiting, config.compile_wait_s)
        self._plain_thread = ThreadPoolExecutor(1, thread_name_prefix="grammar")
        self._tried_threads = ThreadPoolExecutor(processes, thread_name_prefix="tried grammar")
        self._trials = [TrialProcess(self._definition, width, end_ids, config) for _ in range(processes)]
        self._idle = list(self._trials)
        self._vocabulary: Vocabulary | None = None
        self._reading = threading.Lock()

    def start(self) -> None:
        """Read the vocabulary and start the processes now, so that the first request does not wait for them."""
        # reading a large vocabulary frees twenty megabytes
        self._plain_thread.submit(self.vocabulary).add_done_callback(lambda read: release())
        for trial in self._trials:
            self._tried_threads.submit(_warm, trial)

    async def compile(self, spec: GrammarSpec, tenant: str = "") -> Guide:
        """The guide of a grammar. tenant: its owner; guides are not shared between tenants. Cancellation ends
        the compilation.

        Raises InvalidField that names the wrong, unsupported or too complex part of the grammar; the errors of
        `Turns.turn`; and Overloaded if no process can be started.
        """
        guide = self.kept(spec, tenant)
        if guide is not None:
            return guide
        async with (self._plain_turns if spec.plain else self._tried_turns).turn(tenant):
            # another request of this tenant may have compiled it meanwhile
            guide = self.kept(spec, tenant)
            if guide is None:
                guide = await (self._plainly(spec) if spec.plain else self._tried(spec))
                self._guides.put(tenant, spec.text, guide)
        return guide

    def kept(self, spec: GrammarSpec, tenant: str = "") -> Guide | None:
        """The guide that `compile` would return at once."""
        return self._guides.get(tenant, spec.text)

    def close(self) -> None:
        """End the processes. Compilations in a thread are not awaited; they are short."""
        for threads in (self._plain_thread, self._tried_threads):
            threads.shutdown(wait=False, cancel_futures=True)
        for trial in self._trials:
            trial.close()
        self._definition.close()

    def vocabulary(self) -> Vocabulary:
        """The vocabulary, which the first caller reads. Call it in threads."""
        with self._reading:
            if self._vocabulary is None:
                self._vocabulary = Vocabulary(self._definition.descriptor(), self._width, self._end_ids)
            return self._vocabulary

    async def _plainly(self, spec: GrammarSpec) -> Guide:
        return await asyncio.get_running_loop().run_in_executor(self._plain_thread, self._compile, spec)

    async def _tried(self, spec: GrammarSpec) -> Guide:
        """Try and compile a grammar. There are as many threads and processes as slots, so one of each is free."""
        trial, left = self._idle.pop(), threading.Event()
        work = asyncio.get_running_loop().run_in_executor(self._tried_threads, self._compile_tried, spec, trial, left)
        try:
            return await asyncio.shield(work)
        except asyncio.CancelledError:
            left.set()
            trial.kill()
            # keep the slot until the thread is free, which it is once the process is dead
            await asyncio.wait([work])
            if not work.cancelled():
                work.exception()
            raise
        finally:
            self._idle.append(trial)

    def _compile_tried(self, spec: GrammarSpec, trial: TrialProcess, left: threading.Event) -> Guide:
        self._require_passed(spec, trial, left)
        return self._compile(spec)

    def _require_passed(self, spec: GrammarSpec, trial: TrialProcess, left: threading.Event) -> None:
        try:
            trial.warm()
        except (EOFError, OSError, ConfigError):
            logger.exception("grammar trial process cannot be started")
            raise Overloaded("This grammar cannot be compiled at the moment.", retry_after_s=1.0) from None
        try:
            fault = trial.run(spec.text, left).fault
        except TimeoutError:
            fault = (
                f"too complex: compiling it takes longer than {self._config.compile_timeout_s:g} s, the limit of this "
                "engine. Use fewer and simpler patterns, formats and numeric rules."
            )
            self._renew(trial)
        except EOFError:
            # out of memory or stack, or a panic; or killed, in which case no caller reads this
            fault = "too complex: the compiler failed on it. Use fewer and simpler rules."
            self._renew(trial)
        if fault is not None:
            raise _refusal(spec, fault)

    def _renew(self, trial: TrialProcess) -> None:
        """Restart the process before the next grammar arrives."""
        # the threads may be shut down meanwhile
        with contextlib.suppress(RuntimeError):
            self._tried_threads.submit(_warm, trial)

    def _compile(self, spec: GrammarSpec) -> Guide:
        matcher, fault = self.vocabulary().compile(spec.text)
        if fault is not None:
            raise _refusal(spec, fault)
        return Guide(matcher)


def _warm(trial: TrialProcess) -> None:
    try:
        trial.warm()
    except (EOFError, OSError, ConfigError):
        # the next grammar tries again, and its client gets the error
        if not trial.closed:
            logger.warning("grammar trial process did not start")


def _refusal(spec: GrammarSpec, fault: str) -> InvalidField:
    return InvalidField(f"{spec.field}: {fault}", param=spec.field)
