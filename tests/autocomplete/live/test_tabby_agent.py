"""Tabby's own agent (npm `tabby-agent`), driven as an editor drives it, against a gateway.

It asks `/v1/health` and `/v1beta/server_setting` first and sends nothing to a server that it takes for disconnected.
"""

from __future__ import annotations

import os
from pathlib import Path

from tests.autocomplete.asked import engine_record, sides
from tests.autocomplete.live.language_client import language_client
from tests.autocomplete.live.node import PACKAGES, require_node
from tests.gateway.slow_platform import SlowPlatform

TEXTS = ("rn a", " + b")
FILE = "def add(a, b):\n    retu\n\nprint(add(1, 2))\n"
URI = "file:///project/calc.py"


async def test_an_editor_is_offered_what_the_model_wrote(platform: SlowPlatform, tmp_path: Path) -> None:
    node = require_node()
    settings = tmp_path / ".tabby-client" / "agent" / "config.toml"
    settings.parent.mkdir(parents=True)
    settings.write_text(
        f'[server]\nendpoint = "{platform.url}"\ntoken = "{platform.key}"\n[anonymousUsageTracking]\ndisable = true\n'
    )
    environment = {**os.environ, "HOME": str(tmp_path)}
    await platform.engine.control(texts=TEXTS, tokens=len(TEXTS))
    try:
        command = (node, PACKAGES / "tabby-agent" / "dist" / "cli.js", "--lsp", "--stdio")
        async with language_client(command, environment, tmp_path) as editor:
            await editor.ask("initialize", processId=None, rootUri=None, capabilities={})
            editor.tell("initialized")
            document = {"uri": URI, "languageId": "python", "version": 1, "text": FILE}
            editor.tell("textDocument/didOpen", textDocument=document)
            offered = await editor.ask(
                "textDocument/completion",
                textDocument={"uri": URI},
                position={"line": 1, "character": 8},
                context={"triggerKind": 1},
            )
    finally:
        await platform.engine.control(texts=(), tokens=16)
    (item,) = offered["items"]
    assert item["textEdit"]["newText"].endswith("rn a + b")
    *_, last = await platform.engine.recorded()
    prefix, suffix = sides((await engine_record(platform, last["rid"]))["body"]["prompt"])
    assert prefix.endswith("def add(a, b):\n    retu")
    assert suffix == "\n\nprint(add(1, 2))\n"
