"""Runs the example of a guide as a reader would, on a deployment of the tests."""

from __future__ import annotations

import asyncio
import re

from tests.deployment import ROOT


async def run_example(page: str, *replaced: tuple[str, str]) -> None:
    """Run the page's Python blocks as one. replaced: texts of them, each of which must be there, and what stands for
    them."""
    text = (ROOT / "docs" / "guides" / page).read_text()
    example = "".join(re.findall(r"^```python\n(.*?)^```$", text, re.M | re.S))
    for word, own in replaced:
        assert word in example
        example = example.replace(word, own)
    await asyncio.to_thread(exec, example, {})
