"""`slipstream`, on a disk as slow as a file says: `python -m tests.gateway.slow_disk FILE gateway --data …`.

FILE holds the seconds by which every fdatasync is late, and may change while the process runs.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import Any

from slipstream.__main__ import main

LATENESS = Path(sys.argv.pop(1))
_fdatasync = os.fdatasync


def late_fdatasync(descriptor: Any) -> None:
    time.sleep(float(LATENESS.read_text()))
    _fdatasync(descriptor)


if __name__ == "__main__":
    os.fdatasync = late_fdatasync  # type: ignore[assignment]
    main()
