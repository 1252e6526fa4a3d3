"""The shell blocks of README and guides: what can run, runs, in order, on a fresh folder; the rest is in a list here.

The first customer and the deployment have tests of their own.
"""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest

from slipstream.fetched_model import NAME
from tests.deployment import ROOT, fake_fleet
from tests.fakes.process import fake_engine
from tests.slipstream.guide import NOT_RUN, blocks, reader, shell_blocks

GUIDES = ROOT / "docs" / "guides"
PAGES = (ROOT / "README.md", *sorted(GUIDES.glob("*.md")))
ON_ONE_DEPLOYMENT = (
    "customers.md",
    "console.md",
    "editors.md",
    "diagnose.md",
    "monitoring.md",
    "workload.md",
    "real-engines.md",
    "secrets.md",
    "fleet.md",
    "costs.md",
    "backup.md",
)
"""After README, which starts it; backup last, for it stops it and starts it again."""
WITH_TESTS_OF_THEIR_OWN = {
    "adapters.md", "first-customer.md", "deploy.md", "launch-engines.md", "plan.md", "release.md",
}  # fmt: skip
NOT_RUN_HERE = {
    ("README.md", "it is what runs the tests"): 1,
    ("adapters.md", "needs engines that take adapters"): 1,
    ("fp8.md", "needs a BF16 checkpoint"): 5,
    ("agents.md", "needs the client"): 2,
    ("agents.md", "needs a session"): 1,
    ("agents.md", "it fails where anything is wrong"): 1,
    ("add-a-slice.md", "it takes a folder of slices"): 1,
    ("backup.md", "it changes the clone"): 1,
    ("backup.md", "needs a PostgreSQL of your own"): 1,
    ("benchmarks.md", "a benchmark, minutes to hours; its rivals are installed by the reader"): 5,
    ("litellm.md", "needs a proxy's database"): 1,
    ("load-tools.md", "downloads 4 GB"): 1,
    ("load-tools.md", "loads a deployment for 35 seconds"): 1,
    ("load-tools.md", "needs the tool and a deployment; python -m benchmarks.client_tools runs it"): 4,
    ("benchmarks.md", "a benchmark, minutes; SGLang is installed by the reader"): 1,
    ("console-pages.md", "it is what makes the pictures"): 1,
    ("customers.md", "it ends after a quarter of an hour"): 1,
    ("customers.md", "needs heads that were noted elsewhere"): 1,
    ("deploy.md", "it changes /opt, /etc and the accounts of the machine"): 1,
    ("deploy.md", "needs a Docker daemon"): 1,
    ("deploy.md", "needs systemd"): 1,
    ("diagnose.md", "says something only where requests have been slow"): 1,
    ("editors.md", "the key is the reader's"): 1,
    ("embeddings.md", "needs a rerank model"): 1,
    ("fleet.md", "needs engines"): 2,
    ("fleet.md", "needs a second version"): 1,
    ("monitoring.md", "makes a role with a password of your choice"): 1,
    ("monitoring.md", "the address is yours"): 1,
    ("network.md", "needs a gateway at the other end of a network"): 1,
    ("real-engines.md", "needs SGLang"): 1,
    ("real-engines.md", "needs llama.cpp"): 1,
    ("release.md", "it takes a candidate and its traffic"): 1,
    ("release.md", "it takes a release"): 2,
    ("secrets.md", "needs several machines"): 1,
    ("tensorrt-llm.md", "needs TensorRT-LLM on a GPU"): 2,
    ("vllm.md", "needs vLLM"): 2,
    ("train-the-models.md", "training takes hours"): 6,
}
TOKEN = "deployment-token-of-the-pages"
COMMANDS = re.compile(r"^(    |\t)(\$ )?(slipstream|make|curl|python3?|pip|docker|export|cd|[A-Z_]+=\S+ \w+) ", re.M)


def test_what_is_not_run_is_known_and_says_why() -> None:
    found = Counter(
        (block.page, block.note.removeprefix(NOT_RUN))
        for page in PAGES
        for block in blocks(page)
        if block.note.startswith(NOT_RUN)
    )
    assert found == NOT_RUN_HERE


def test_every_page_with_something_to_run_is_run() -> None:
    assert {page.name for page in PAGES if shell_blocks(page)} == {
        "README.md", *ON_ONE_DEPLOYMENT, *WITH_TESTS_OF_THEIR_OWN,
    }  # fmt: skip


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_no_command_hides_from_the_tests_in_an_indented_block(page: Path) -> None:
    outside = re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.M | re.S)
    assert COMMANDS.search(outside) is None


@pytest.mark.system
async def test_the_pages_run_from_top_to_bottom() -> None:
    """On a fake engine that serves the chat model's name: what is tried here is around it."""
    async with (
        fake_engine(token=TOKEN, model=NAME) as engine,
        reader(**fake_fleet(engine.url, model=NAME)) as person,
    ):
        data = person.folder / ".slipstream"
        data.mkdir(mode=0o700)
        for name in ("token", "engine.metrics.token"):
            (data / name).write_text(TOKEN)
            (data / name).chmod(0o600)
        said = {}
        for page in (ROOT / "README.md", *(GUIDES / name for name in ON_ONE_DEPLOYMENT)):
            for block in shell_blocks(page):
                said[block.title] = await person.paste(block)
        whole = "".join(said.values())
    assert [line for line in whole.splitlines() if '{"error":' in line] == []
    assert "slipstream_journal_healthy 1.0" in whole
    assert whole.count('"object":"list"') >= 1
