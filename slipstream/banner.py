"""Renders the text that `up` prints at the end: its URL, the models, the key, and a command to paste."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Sequence

from contracts.desired_state import Model, Pool
from contracts.generation import Tier
from contracts.pooling import Task
from slipstream.fetched_model import NAME

LABEL_COLUMNS = 17
VALUE_COLUMNS = 21
TEXT_COLUMNS = 96
BETTER = "A better model: {program} up --chat-model FOLDER (Llama, Mistral, Qwen, Gemma, Phi) or FILE.gguf."
TIER_ORDER = (Tier.CHAT, Tier.AUTOCOMPLETE)


def render(
    url: str,
    models: Sequence[Model],
    pools: Sequence[Pool],
    key: str | None,
    *,
    key_held: bool,
    admin_key: str | None = None,
    console_link: str | None = None,
    console: bool = False,
    make_link: str = "slipstream console link",
    admin_url: str = "",
    make_key: str = "slipstream keys create",
    program: str = "slipstream",
    lack: str | None = None,
    taken_port: int | None = None,
) -> str:
    """The text. key, admin_key: secrets that were just made. key_held: whether an earlier start made a key.
    console_link: a link that was just made, or its path. console: whether the console is served. admin_url: the URL of
    the console and the admin API; empty for `url`. make_key, make_link: the commands that make a key and a link.
    program: the name under which a shell finds this program. lack: why NAME is not served, if it is not.
    taken_port: the gateway's usual port, if another program has it."""
    admin_url = admin_url or url
    by_name = {pool.name: pool for pool in pools}
    lines = [f"{'Slipstream is up':<{LABEL_COLUMNS + VALUE_COLUMNS}}{url}      (Ctrl-C stops it)"]
    if taken_port is not None:
        lines += _wrapped(f"Another program uses port {taken_port}; choose a port with --port.")
    for model in (model for tier in TIER_ORDER for model in models if model.tier is tier):
        label = model.tier if model.task is Task.TEXT else model.task
        lines.append(_line(label, model.name, _served(model, by_name[model.pool])))
        lines += _wrapped(model.description)
        if model.description and model.tier is Tier.CHAT and model.task is Task.TEXT:
            if lack is not None:
                lines += _wrapped(f"It replaces {NAME}, which is not served: {lack}. The next `up` tries again.")
            lines += _wrapped(BETTER.format(program=program))
    if key is not None:
        lines.append(_line("your key", key, 'organization "demo"; shown once, stored hashed'))
    elif key_held:
        lines.append(_line("your key", "as shown at the first start", f"make another: {make_key}"))
    else:
        lines.append(_line("your key", "none yet", f"make one: {make_key}"))
    if admin_key is not None:
        lines.append(_line("admin key", admin_key, f"for {admin_url}/admin/v1; shown once"))
    if console_link is not None:
        link = console_link if "://" in console_link else f"{admin_url}{console_link}"
        lines.append(_line("console", link, "one-time link; create your account there"))
    elif console:
        lines.append(_line("console", f"{admin_url}/console/", f"sign in there; to add an account: {make_link} EMAIL"))
    attempt = _try(url, models, key)
    if attempt and key is None:
        attempt = f"KEY=$({make_key}); {attempt}"
    if attempt:
        lines.append(_line("try", attempt, ""))
    return "\n".join(lines)


def _wrapped(text: str) -> list[str]:
    """The text as continuation lines."""
    return [_line("", line, "") for line in textwrap.wrap(text, TEXT_COLUMNS, break_on_hyphens=False)]


def _served(model: Model, pool: Pool) -> str:
    count = len(pool.replicas)
    replicas = f"{count} replica{'' if count == 1 else 's'}"
    engine = "embedded engine" if pool.driver == "embedded" else f"{pool.driver} engine"
    hardware = f" on {pool.hardware_of()}" if pool.hardware_of() else ""
    return f"{engine}{hardware}, {replicas}, {model.context_tokens:,} tokens"


def _line(label: str, value: str, note: str) -> str:
    padded = f"{value:<{VALUE_COLUMNS}}" if len(value) < VALUE_COLUMNS else f"{value}  "
    return f"  {label:<{LABEL_COLUMNS - 2}}{padded}{note}".rstrip()


def _try(url: str, models: Sequence[Model], key: str | None) -> str:
    """A shell command that streams a response; without `key`, it takes an earlier key from the shell's KEY.

    The variable does not begin with SLIPSTREAM_: exported, it would be read as a setting and stop every command.
    """
    secret = key or "$KEY"
    models = [model for model in models if model.task is Task.TEXT]
    for model in models:
        if model.tier is Tier.CHAT:
            messages = [{"role": "user", "content": "What is the capital of France?"}]
            body: dict[str, object] = {"model": model.name, "messages": messages}
            if model.name != NAME:  # its default is greedy, with a penalty that a temperature would switch off
                body["temperature"] = 0
            return _curl(f"{url}/v1/chat/completions", secret, body)
    for model in models:
        return _curl(f"{url}/v1/completions", secret, {"model": model.name, "prompt": "def main(", "max_tokens": 16})
    return ""


def _curl(url: str, secret: str, body: dict[str, object]) -> str:
    text = json.dumps({**body, "stream": True}, ensure_ascii=False, separators=(",", ":")).replace("'", "'\\''")
    return f"curl -N {url} -H \"Authorization: Bearer {secret}\" -H 'Content-Type: application/json' -d '{text}'"
