"""`slipstream logs -f`."""

from __future__ import annotations

from pathlib import Path

from infra.local.log_file import rotate
from slipstream.commands.logs import _added


def test_following_a_log_over_its_rotation_loses_no_line(tmp_path: Path) -> None:
    log = tmp_path / "engine.log"
    log.write_text("it runs\n")
    positions = {"engine": 0}
    assert _added(log, positions, "engine") == ["it runs"]
    with log.open("a") as file:
        file.write("why it died\n")
    rotate(log, 4, 3)
    assert _added(log, positions, "engine") == []
    log.write_text("again\n")
    assert _added(log, positions, "engine") == ["why it died", "again"]
