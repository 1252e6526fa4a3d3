"""What a command that asked for a decision ends with: 2 is a wrong option's, and 1 that of an error too."""

from __future__ import annotations

EXIT = {"pass": 0, "fail": 1, "inconclusive": 3}
"""By the decision of the eval gate, or of the quantization gate."""
