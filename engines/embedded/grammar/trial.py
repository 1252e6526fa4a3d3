"""A process that tries grammars: `python -m engines.embedded.grammar.trial DEFINITION WIDTH END_IDS MEMORY_BYTES`.

Only the end of a process can stop llguidance while it compiles. A separate process therefore tries clients' grammars,
and the engine compiles only those that pass.
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
"""Time after the deadline at which the kernel ends this process, in case the engine has died or hangs and does not
kill it at the deadline."""


def main(definition: str, width: str, end_ids: str, memory_bytes: str) -> None:
    """Answer orders from standard input on standard output until either is closed. definition: see `KeptDefinition`."""
    vocabulary = Vocabulary(int(definition), int(width), msgspec.json.decode(end_ids, type=list[int]))
    _bound_memory(int(memory_bytes))
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    orders, verdicts = Connection(0, writable=False), Connection(1, readable=False)
    # before the first order, one verdict reports that the vocabulary has been read
    send(verdicts, Verdict())
    with contextlib.suppress(EOFError, BrokenPipeError):
        while True:
            order = msgspec.json.decode(receive(orders), type=Order)
            # without a handler, the signal ends the process in the middle of any work
            signal.setitimer(signal.ITIMER_REAL, order.timeout_s + GRACE_S)
            _, fault = vocabulary.compile(order.text)
            signal.setitimer(signal.ITIMER_REAL, 0)
            send(verdicts, Verdict(fault))


def _bound_memory(more_bytes: int) -> None:
    """Limit this process to `more_bytes` above its current memory."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    statm = Path("/proc/self/statm")
    if statm.exists():
        used = int(statm.read_text().split()[5]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_DATA, (used + more_bytes, used + more_bytes))


if __name__ == "__main__":
    main(*sys.argv[1:])
