"""The shipped code model as if it had learnt gaps in the other order: prefix, suffix, and the half-typed line last."""

from __future__ import annotations

from pathlib import Path

import msgspec

SHIPPED = Path(__file__).parents[1] / "models" / "slipstream-code"


def write_psm_model(folder: Path) -> Path:
    """A folder that an engine and a gateway can load; the weights are the shipped ones."""
    folder.mkdir()
    for file in SHIPPED.iterdir():
        if file.is_file() and file.name != "tokenizer_config.json":
            (folder / file.name).symlink_to(file)
    config = msgspec.json.decode((SHIPPED / "tokenizer_config.json").read_bytes())
    config |= {"fim_order": "psm", "fim_typed_line": "after_middle"}
    del config["fim_min_confidence"]
    (folder / "tokenizer_config.json").write_bytes(msgspec.json.encode(config))
    return folder
