"""What the page about adapters tells to try on one machine, as it stands: settings, adapter, and both answers."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec
import pytest

from tests.deployment import ROOT, free_port
from tests.slipstream.guide import Block, Reader, blocks, reader, shell_blocks

pytestmark = pytest.mark.nightly
PAGE = ROOT / "docs" / "guides" / "adapters.md"
FILES = {"toml": "adapters.toml", "python": "noise.py"}


async def test_the_page_adds_an_adapter_that_changes_what_the_model_says() -> None:
    async with reader() as person:
        clone(person)
        start, ask = shell_blocks(PAGE)
        shown = await person.paste(start)
        key = re.search(r"sk-slip-\w+", shown)
        assert key is not None, shown
        await person.paste(Block("adapters.md", 0, "sh", f"export SLIPSTREAM_API_KEY={key[0]}\n", ""))
        said = await person.paste(ask)
        plain, noisy = (
            msgspec.json.decode(line)["choices"][0]["message"]["content"]
            for line in said.splitlines()
            if line.startswith("{")
        )
        assert "Paris" in plain
        assert "Paris" not in noisy
        totals = Block("adapters.md", 0, "sh", ask.text.splitlines()[-1] + "\n", "")
        while "noise" not in said:  # until the gateway has shipped it
            said = await person.paste(totals)


def clone(person: Reader) -> None:
    """Save the page's files where they are saved, beside the models of a clone, with a port and a folder of its own."""
    own = {"8010": str(free_port()), "~/.slipstream-adapters": str(person.folder / "data")}
    person.replaced |= own
    (person.folder / "models").symlink_to(ROOT / "models")
    text = PAGE.read_text()
    for block in blocks(PAGE):
        name = FILES.get(block.language)
        if name is not None and f" as `{name}`:" in text[: text.index(block.text)]:
            Path(person.folder / name).write_text(block.text)
    assert {name for name in FILES.values() if (person.folder / name).exists()} == set(FILES.values())
