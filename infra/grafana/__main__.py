"""Rewrites `infra/grafana/dashboards` from the boards. Run it from the project's root."""

from __future__ import annotations

from pathlib import Path

from infra.grafana import render
from infra.grafana.boards import BOARDS

FOLDER = Path(__file__).parent / "dashboards"


def main() -> None:
    """Write each board's file. Raises OSError."""
    FOLDER.mkdir(exist_ok=True)
    for board in BOARDS:
        (FOLDER / f"{board.name}.json").write_text(render.text(board))


if __name__ == "__main__":
    main()
