"""The log lines of an engine that compiles its kernels or waits for them. `up` searches logs for `COMPILING` and
imports no kernel."""

from __future__ import annotations

COMPILING = "compiling the kernels for this kind of model: 10 to 20 seconds of one core, then they are cached"
WAITING = f"waiting for another engine, which is {COMPILING}"
