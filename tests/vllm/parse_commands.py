"""Run by vLLM's own Python: has the parser of `vllm serve` take every command line that stands on stdin, as JSON lists
of words, and prints what it understood of each.
"""

import json
import sys

from vllm.entrypoints.launchers.cli_args import make_arg_parser  # type: ignore[import-not-found]  # another environment's
from vllm.utils.argparse_utils import FlexibleArgumentParser  # type: ignore[import-not-found]
from vllm.v1.spec_decode.dynamic.utils import (  # type: ignore[import-not-found]
    validate_and_normalize_dynamic_sd_schedule,
)

parser = make_arg_parser(FlexibleArgumentParser())
for words in json.load(sys.stdin):
    taken = parser.parse_args(words)
    drafts = taken.speculative_config
    if drafts is not None and "num_speculative_tokens_per_batch_size" in drafts:
        validate_and_normalize_dynamic_sd_schedule(drafts["num_speculative_tokens_per_batch_size"])
    told = {name: getattr(taken, name) for name in ("api_key", "max_num_seqs", "scheduling_policy")}
    print(json.dumps({**told, "drafts": drafts}))
