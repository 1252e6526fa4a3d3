"""A process that tries grammars: `python -m engines.embedded.grammar.trial DEFINITION WIDTH END_IDS MEMORY_BYTES`.

Only the end of its process can stop llguidance while it compiles. So a separate process tries clients' grammars; the
engine compiles only those that passed.
"""

from __future__ import annotations

import contextlib
import resource
import signal
import sys
from multiprocessing.connection import Connection
from pathlib import Path

import msgspec

from engines.embedded.grammar.orders import Order, Verdict, receive, send
from engines.embedded.grammar.vocabulary import Vocabulary

GRACE_S = 1.0
"""The engine kills this process at the deadline; only if the engine is gone or stuck does the kernel do it, this much
later."""


def main(definition: str, width: str, end_ids: str, memory_bytes: str) -> None:
    """Answer orders from standard input on standard output until it is closed. definition: an inherited descriptor, see
    `KeptDefinition`."""
    vocabulary = Vocabulary(int(definition), int(width), msgspec.json.decode(end_ids, type=list[int]))
    _bound_memory(int(memory_bytes))
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    orders, verdicts = Connection(0, writable=False), Connection(1, readable=False)
    # sent once, before the first order: the vocabulary is read
    send(verdicts, Verdict())
    with contextlib.suppress(EOFError, BrokenPipeError):
        while True:
            order = msgspec.json.decode(receive(orders), type=Order)
            # no handler: the signal's default ends the process in the middle of any work
            signal.setitimer(signal.ITIMER_REAL, order.timeout_s + GRACE_S)
            _, fault = vocabulary.compile(order.text)
            signal.setitimer(signal.ITIMER_REAL, 0)
            send(verdicts, Verdict(fault))


def _bound_memory(most_bytes: int) -> None:
    """Limit the memory of this process to so much more than it has."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    statm = Path("/proc/self/statm")
    if statm.exists():
        used = int(statm.read_text().split()[5]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_DATA, (used + most_bytes, used + most_bytes))


if __name__ == "__main__":
    main(*sys.argv[1:])
