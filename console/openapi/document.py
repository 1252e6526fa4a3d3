"""Write the admin API's OpenAPI document as the console's types are made of it: without examples and refusals.

Run from the repository's root as `python console/openapi/document.py`.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from control.openapi import admin_document


def console_document() -> dict[str, Any]:
    """What the client is generated from. Refusals all have one body, which `src/api/error.ts` reads."""
    document: dict[str, Any] = json.loads(admin_document())
    for path in document["paths"].values():
        for operation in path.values():
            operation["responses"] = {
                status: _without_examples(answer)
                for status, answer in operation["responses"].items()
                if status.startswith(("2", "3"))
            }
            if "requestBody" in operation:
                operation["requestBody"] = _without_examples(operation["requestBody"])
    return document


def _without_examples(described: dict[str, Any]) -> dict[str, Any]:
    content = {
        kind: {name: value for name, value in media.items() if name != "examples"}
        for kind, media in described.get("content", {}).items()
    }
    return {name: value for name, value in described.items() if name not in ("headers", "content")} | (
        {"content": content} if content else {}
    )


if __name__ == "__main__":
    json.dump(console_document(), sys.stdout, indent=1, sort_keys=True)
