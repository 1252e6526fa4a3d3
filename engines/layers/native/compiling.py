"""The log line of an engine that compiles its kernels; `up`, which imports no kernel, looks for it."""

from __future__ import annotations

COMPILING = "compiling the kernels for this kind of model: 10 to 20 seconds of one core, then they are cached"
