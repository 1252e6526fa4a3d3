"""Samples of earlier runs, so that a long measurement can be made in pieces."""

from __future__ import annotations

from pathlib import Path

import msgspec

from benchmarks.engine_cpu_rivals.figures import Cells


def join_kept(path: Path, model: str, cells: Cells) -> Cells:
    """Add `cells` to the model's samples in the file; returns all its samples."""
    kept = msgspec.json.decode(path.read_bytes(), type=dict[str, Cells]) if path.exists() else {}
    own = kept.setdefault(model, {})
    for name, row in cells.items():
        for level, samples in row.items():
            own.setdefault(name, {}).setdefault(level, []).extend(samples)
    path.write_bytes(msgspec.json.encode(kept))
    return own
