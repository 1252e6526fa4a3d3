"""Run by SGLang's own Python: has its parser take every command line that stands on stdin, as JSON lists of words, and
prints what it understood of each, with the numbers of drafts that its adaptive table holds.
"""

import json
import sys

from sglang.srt.server_args import prepare_server_args  # type: ignore[import-not-found]  # another environment's package
from sglang.srt.speculative.adaptive_spec_params import (  # type: ignore[import-not-found]
    resolve_candidate_steps_from_config,
)

TOLD = (
    "api_key",
    "disaggregation_mode",
    "enable_metrics",
    "kv_events_config",
    "max_running_requests",
    "speculative_adaptive",
    "speculative_algorithm",
    "speculative_num_steps",
)
for words in json.load(sys.stdin):
    taken = prepare_server_args(words)
    told = {name: getattr(taken, name) for name in TOLD}
    table = taken.speculative_adaptive_config
    told["candidate_steps"] = resolve_candidate_steps_from_config(table) if table else None
    print(json.dumps(told))
