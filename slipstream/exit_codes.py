"""What a command that asked for a decision or a diagnosis ends with: 2 is a wrong option's, and 1 an error's too."""

from __future__ import annotations

GATE_EXIT = {"pass": 0, "fail": 1, "inconclusive": 3}
"""By the decision of the eval gate, or of the quantization gate."""
DIAGNOSIS_EXIT = {"nothing_found": 0, "found": 4, "burning": 4, "not_enough_evidence": 3}
"""By the outcome: neither a finding nor too little evidence has a code that an error has, so that a script can tell."""
DOCTOR_EXIT = {"ok": 0, "warning": DIAGNOSIS_EXIT["found"], "failed": 1}
"""By the worst outcome of all checks: a warning is a finding, and not an error."""
