"""The report of `slipstream status`: overall health first, then processes and engines within 100 columns."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping, Sequence

from contracts.printable import printable
from infra.local.child import ChildStatus, State
from slipstream.replicas import ReplicaStatus
from slipstream.table import table

WIDTH = 100
MAX_URL = 22
"""Longest URL in the table: an address and port. Longer ones, such as the sockets of databases, get their own lines."""
SHORT = {State.WAITING: "waiting"}
MINUTES_FROM_S, HOURS_FROM_S = 600, 36_000
PROCESSES = ("process", "state", "pid", "restarts", "up", "url", "/metrics at")
ENGINES = ("engine", "pool", "state", "url")


def text_of(
    url: str,
    console: str | None,
    processes: Sequence[ChildStatus],
    replicas: Sequence[ReplicaStatus] | None,
    metrics: Mapping[str, str],
    refusals: Sequence[str] = (),
) -> str:
    """The report. url: the API's, empty without a supervisor. console: its address, or None. replicas: None if the
    router does not answer. metrics: `host:port` by process. refusals: see `gateway_refusals`."""
    return "\n".join(_lines(url, console, processes, replicas, metrics, refusals))


def _lines(
    url: str,
    console: str | None,
    processes: Sequence[ChildStatus],
    replicas: Sequence[ReplicaStatus] | None,
    metrics: Mapping[str, str],
    refusals: Sequence[str],
) -> Iterator[str]:
    wrong = [*_wrong(processes, replicas), *refusals]
    if wrong:
        yield from textwrap.wrap(f"Needs attention: {'; '.join(wrong)}", WIDTH, subsequent_indent="  ")
    else:
        yield f"All is well: {_right(processes, replicas or ())}"
    if url:
        yield f"API      {url}/v1"
    if console is not None:
        yield f"console  {console}"
    if processes:
        yield ""
        rows = [_process(each, metrics.get(each.name, "")) for each in processes]
        yield from _with_notes(PROCESSES, rows, ["" if _fits(each.url) else each.url for each in processes])
    if replicas:
        yield ""
        engines = [(each.id, each.pool, each.word, each.url) for each in replicas]
        yield from _with_notes(ENGINES, engines, [each.reason for each in replicas])


def _with_notes(head: Sequence[str], rows: Sequence[Sequence[str]], notes: Sequence[str]) -> Iterator[str]:
    """The table, with each row's note on its own lines below it: in a cell, it would make the table too wide."""
    first, *lines = table(head, rows)
    yield first
    for line, note in zip(lines, notes, strict=True):
        yield line
        yield from textwrap.wrap(printable(note), WIDTH, initial_indent="  ", subsequent_indent="  ")


def _fits(url: str) -> bool:
    return len(url) <= MAX_URL


def _right(processes: Sequence[ChildStatus], replicas: Sequence[ReplicaStatus]) -> str:
    usable = [each for each in replicas if each.usable]
    drained = [each.id for each in replicas if not each.usable]
    engines = f"{_counted(len(usable), 'engine')} usable" + (f", {', '.join(drained)} drained" if drained else "")
    return f"{_counted(len(processes), 'process')} ready, {engines}" if processes else engines


def _wrong(processes: Sequence[ChildStatus], replicas: Sequence[ReplicaStatus] | None) -> Iterator[str]:
    waiting = [each.name for each in processes if each.state is not State.READY]
    if waiting:
        verb = "is" if len(waiting) == 1 else "are"
        yield f"{len(waiting)} of {_counted(len(processes), 'process')} {verb} not ready ({', '.join(waiting)})"
    if replicas is None:
        yield "the state of the engines is unknown, because the router does not answer"
    elif not replicas:
        yield "there is no engine"
    else:
        lost = [each.id for each in replicas if not each.usable and not each.drained]
        if lost:
            verb = "is" if len(lost) == 1 else "are"
            yield f"{len(lost)} of {_counted(len(replicas), 'engine')} {verb} not usable ({', '.join(lost)})"


def _counted(count: int, noun: str) -> str:
    plural = f"{noun}es" if noun.endswith("s") else f"{noun}s"
    return f"{count} {noun if count == 1 else plural}"


def _process(each: ChildStatus, metrics: str) -> tuple[str, ...]:
    pid = "-" if each.pid is None else str(each.pid)
    url = each.url if _fits(each.url) else ""
    return (
        each.name,
        SHORT.get(each.state, each.state.value),
        pid,
        str(each.restarts),
        _time(each.uptime_s),
        url,
        metrics,
    )


def _time(seconds: float) -> str:
    if seconds < MINUTES_FROM_S:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < HOURS_FROM_S else f"{seconds / 3600:,.0f} h"
