"""Prints the installed vLLM's release and the options of its own parser for `vllm serve` as JSON.

Run it with vLLM's Python, not this project's, and write the file next to this one:
`VENV/bin/python tools/launch/options/read_vllm.py > tools/launch/options/vllm.json`.
"""

import json
from importlib.metadata import version

from vllm.entrypoints.launchers.cli_args import make_arg_parser  # type: ignore[import-not-found]  # another environment's
from vllm.utils.argparse_utils import FlexibleArgumentParser  # type: ignore[import-not-found]

options = {}
for action in make_arg_parser(FlexibleArgumentParser())._actions:
    values = 0 if action.nargs == 0 else (1 if action.nargs is None else -1)
    choices = sorted(map(str, action.choices)) if action.choices else None
    for name in action.option_strings:
        if name.startswith("--"):
            alias = {} if action.dest == name[2:].replace("-", "_") else {"sets": action.dest}
            options[name] = {"values": values, **alias, **({"choices": choices} if choices else {})}
release = version("vllm").partition("+")[0]
lines = ",\n".join(f"  {json.dumps(name)}: {json.dumps(options[name])}" for name in sorted(options))
print(f'{{\n "version": {json.dumps(release)},\n "options": {{\n{lines}\n }}\n}}')  # noqa: T201
