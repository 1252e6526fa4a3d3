"""The log line of an engine that compiles its kernels; `up`, which imports no kernel, looks for it."""

from __future__ import annotations

COMPILING = "compiling the kernels; this takes some seconds, once"
