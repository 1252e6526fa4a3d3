"""The block a newcomer sees, to the letter."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

from contracts import settings
from contracts.desired_state import Model, Pool, Replica
from contracts.generation import Tier
from contracts.pooling import Task
from slipstream import banner
from slipstream.settings import Settings
from tests.slipstream.deployment import run_here

MODELS = (
    Model("slipstream-code", Tier.AUTOCOMPLETE, "autocomplete", 2048),
    Model("slipstream-chat", Tier.CHAT, "chat", 2048),
)
POOLS = (
    Pool("chat", "embedded", (Replica("a", "http://127.0.0.1:1"),)),
    Pool("autocomplete", "embedded", (Replica("b", "http://127.0.0.1:2"),)),
)
URL = "http://127.0.0.1:8000"


def test_the_first_start_shows_everything_once() -> None:
    lines = banner.render(URL, MODELS, POOLS, "sk-slip-abc", key_held=True).splitlines()
    assert lines[:4] == [
        "Slipstream is up                      http://127.0.0.1:8000      (Ctrl-C stops it)",
        "  chat           slipstream-chat      embedded engine, 1 replica, 2,048 tokens",
        "  autocomplete   slipstream-code      embedded engine, 1 replica, 2,048 tokens",
        '  your key       sk-slip-abc          organization "demo"; shown once, stored hashed',
    ]
    assert lines[4].startswith("  try            curl -N http://127.0.0.1:8000/v1/chat/completions -H ")
    assert len(lines) == 5
    words = shlex.split(lines[4].removeprefix("  try"))
    assert "Authorization: Bearer sk-slip-abc" in words, "it is one shell command"
    assert words[-1].startswith('{"model":"slipstream-chat"')


def test_a_model_of_another_task_is_not_tried_as_chat() -> None:
    """Fault: an embedding model that came first was to answer a question."""
    vectors = Model("vectors", Tier.CHAT, "vectors", 512, task=Task.EMBEDDING)
    pools = (*POOLS, Pool("vectors", "embedded", (Replica("c", "http://127.0.0.1:3"),)))
    lines = banner.render(URL, (vectors, *MODELS), pools, "k", key_held=True).splitlines()
    assert lines[1] == "  embedding      vectors              embedded engine, 1 replica, 512 tokens"
    assert '"model":"slipstream-chat"' in lines[-1]


def test_later_starts_do_not_know_the_key_and_say_how_to_make_one() -> None:
    lines = banner.render(URL, MODELS, POOLS, None, key_held=True, make_key="bin/slipstream keys create").splitlines()
    assert "  your key       as shown at the first start  make another: bin/slipstream keys create" in lines
    assert lines[-1].split(maxsplit=1)[1].startswith("KEY=$(bin/slipstream keys create); curl -N ")
    assert '"temperature":0' in lines[-1]


def test_later_starts_say_where_the_console_is() -> None:
    text = banner.render(URL, MODELS, POOLS, None, key_held=True, console=True)
    [line] = (line for line in text.splitlines() if line.startswith("  console "))
    assert line.split(maxsplit=2)[1:] == [
        "http://127.0.0.1:8000/console/",
        "sign in there; to add an account: slipstream console link EMAIL",
    ]
    assert "console" not in banner.render(URL, MODELS, POOLS, None, key_held=True)
    first = banner.render(
        URL, MODELS, POOLS, None, key_held=True, console=True, console_link="/console/#/welcome?token=x"
    )
    assert [line.split()[1] for line in first.splitlines() if "console" in line] == [f"{URL}/console/#/welcome?token=x"]


def test_a_moved_port_stands_below_the_address() -> None:
    lines = banner.render("http://127.0.0.1:8001", MODELS, POOLS, None, key_held=True, taken_port=8000).splitlines()
    assert "http://127.0.0.1:8001" in lines[0]
    assert lines[1].strip() == "Another program uses port 8000; choose a port with --port."


def test_the_variable_that_a_later_start_names_may_be_exported(tmp_path: Path) -> None:
    """As a setting it would be unknown, and stop every command of the shell."""
    (name,) = set(re.findall(r"\$(\w+)", banner.render(URL, MODELS, POOLS, None, key_held=True)))
    settings.load(Settings, None, {name: "sk-slip-abc"})
    shown = run_here("config", "show", "--data", str(tmp_path), env={name: "sk-slip-abc"})
    assert shown.returncode == 0, shown.stderr


def test_other_engines_are_named_for_what_they_are() -> None:
    pools = (Pool("chat", "sglang", (Replica("a", "http://x"), Replica("b", "http://y"))), POOLS[1])
    text = banner.render(URL, MODELS, pools, None, key_held=False)
    assert "slipstream-chat      sglang engine, 2 replicas, 2,048 tokens" in text
