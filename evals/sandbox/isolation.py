"""How code of models may be kept from the machine: a setting."""

from __future__ import annotations

from enum import StrEnum


class Isolation(StrEnum):
    """How code of models is kept from the machine."""

    NAMESPACES = "namespaces"
    """Linux namespaces: no files but Python's own and those read-only, no sight of other processes, no network; and
    limits of CPU time, memory, processes and files, and no sockets."""
    PROCESS = "process"
    """The limits only: the code can read what the account can read, signal its processes, and where the kernel lets
    processes of one account trace each other also change them. Not for code that is meant to deceive."""
