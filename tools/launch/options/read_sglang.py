"""Prints the installed SGLang's release and the options of its own parser as JSON.

Run it with SGLang's Python, not this project's, and write the file next to this one:
`VENV/bin/python tools/launch/options/read_sglang.py > tools/launch/options/sglang.json`.
"""

import argparse
import json
from importlib.metadata import version

from sglang.srt.server_args import ServerArgs  # type: ignore[import-not-found]  # another environment's package

parser = argparse.ArgumentParser()
ServerArgs.add_cli_args(parser)
options = {}
for action in parser._actions:
    values = 0 if action.nargs == 0 else (1 if action.nargs is None else -1)
    choices = sorted(map(str, action.choices)) if action.choices else None
    for name in action.option_strings:
        if name.startswith("--"):
            alias = {} if action.dest == name[2:].replace("-", "_") else {"sets": action.dest}
            options[name] = {"values": values, **alias, **({"choices": choices} if choices else {})}
lines = ",\n".join(f"  {json.dumps(name)}: {json.dumps(options[name])}" for name in sorted(options))
print(f'{{\n "version": {json.dumps(version("sglang"))},\n "options": {{\n{lines}\n }}\n}}')  # noqa: T201
