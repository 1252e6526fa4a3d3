"""Exit codes of commands that make a decision or a diagnosis. 2 also means a wrong option, and 1 an error."""

from __future__ import annotations

GATE_EXIT = {"pass": 0, "fail": 1, "inconclusive": 3}
"""Exit codes by the decision of the eval gate or the quantization gate."""
DIAGNOSIS_EXIT = {"nothing_found": 0, "found": 4, "burning": 4, "not_enough_evidence": 3}
"""Exit codes by the outcome. A finding and too little evidence have other codes than an error, for scripts."""
DOCTOR_EXIT = {"ok": 0, "warning": DIAGNOSIS_EXIT["found"], "failed": 1}
"""Exit codes by the worst outcome of all checks: a warning is a finding, not an error."""
