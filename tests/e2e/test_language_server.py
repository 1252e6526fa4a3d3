"""`slipstream tools lsp` on the shipped code model."""

from __future__ import annotations

from tests.deployment import Deployment
from tests.language_client import editor


async def test_the_shipped_model_completes_a_line_in_an_editor(embedded: Deployment) -> None:
    async with editor("--url", embedded.url, environment={"SLIPSTREAM_API_KEY": embedded.key}) as opened:
        opened.open("def add(a, b):\n    return \n\n\nprint(add(1, 2))\n")
        [item] = await opened.complete(1, 11)
        assert isinstance(item.insert_text, str)
        assert item.insert_text.strip()
        opened.type(1, 11, item.insert_text[:1])
        more = await opened.complete(1, 12)
        assert [each.insert_text for each in more] == [item.insert_text[1:]] * (len(item.insert_text) > 1)
        opened.open("def add(a, b):\n    return ", uri="file:///project/b.py")
        assert await opened.complete(1, 11), "with nothing behind the cursor too"
        assert opened.messages.empty()
