"""`slipstream up`: starts everything on this machine."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from typing import Any

import click

from slipstream.commands.options import Deployment, deployment_options, kv_budget_option, load_settings
from slipstream.process_end import termination_signals


@click.command()
@deployment_options
@click.option("--host", "gateway__host", metavar="ADDRESS", help="Address to listen on. Default: 127.0.0.1.")
@click.option(
    "--port", "gateway__port", type=int, help="Port to listen on. Default: 8000, or a free one if it is taken."
)
@click.option("--gateways", "local__gateways", type=int, help="Number of gateway processes. Default: 1.")
@click.option(
    "--chat-model",
    "local__chat_model",
    metavar="PATH",
    help="Model for chat: a Hugging Face folder, a GGUF file (Llama, Qwen, Gemma, Phi) or a name on the Hub. Default: "
    "SmolLM2-135M, fetched once.",
)
@click.option(
    "--code-model",
    "local__code_model",
    metavar="PATH",
    help="Model for autocomplete: a Hugging Face folder, a GGUF file or a name on the Hub. Default: the model that "
    "comes with Slipstream.",
)
@click.option("--chat-context-tokens", "local__chat_context_tokens", type=int, help="Default: as the model was made.")
@click.option("--code-context-tokens", "local__code_context_tokens", type=int, help="Default: as the model was made.")
@kv_budget_option
@click.option("--chat-replicas", "local__chat_replicas", type=int, help="Number of chat engines. Default: 1.")
@click.option("--code-replicas", "local__code_replicas", type=int, help="Number of autocomplete engines. Default: 1.")
@click.option("--probe", is_flag=True, help="Start nothing unless every engine matches the settings.")
@click.option("--quiet", is_flag=True, help="Print only the final block.")
def up(deployment: Deployment, probe: bool, quiet: bool, **overrides: Any) -> None:
    """Start everything on this machine, until Ctrl-C."""
    from contracts.settings import is_given
    from slipstream.settings import settings_file
    from slipstream.up import up as run

    settings = load_settings(deployment.config_file, local__data=deployment.data, **overrides)
    port_chosen = overrides["gateway__port"] is not None or is_given(
        "gateway.port", settings_file(deployment.config_file), os.environ
    )

    async def until_stopped() -> None:
        task = asyncio.current_task()
        assert task is not None
        for number in termination_signals():  # while no process runs yet; a download that has begun ends first
            asyncio.get_running_loop().add_signal_handler(number, task.cancel)
        await run(settings, probe=probe, quiet=quiet, port_chosen=port_chosen)

    try:
        asyncio.run(until_stopped())
    except asyncio.CancelledError:
        sys.exit(128 + signal.SIGTERM)
