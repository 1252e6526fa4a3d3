"""The commands of single processes, which `up` and systemd run."""

from __future__ import annotations

import logging
from pathlib import Path

import click

from slipstream.commands.options import (
    config_option,
    data_option,
    kv_budget_option,
    metrics_port_option,
    starting_settings,
)
from slipstream.descriptors import raise_descriptor_limit
from slipstream.process_end import leave
from slipstream.worker_config import Queue

logger = logging.getLogger(__name__)


@click.command()
@config_option
@data_option
@click.option("--instance", default="0", show_default=True, help="Name of this instance. Keep it across restarts.")
@metrics_port_option("gateway")
def gateway(config_file: Path | None, data: str | None, instance: str, **overrides: int | None) -> None:
    """Run one gateway instance."""
    from gateway.main import main
    from slipstream import fleet_check
    from slipstream.composition import instance_of, surroundings

    raise_descriptor_limit()
    settings = starting_settings(config_file, data, **overrides)
    if (estimated := fleet_check.estimated(settings)) is not None:
        logger.warning(estimated)
    place = instance_of(settings, instance)
    main(settings.gateway, place, surroundings(settings, place))
    leave()


@click.command()
@config_option
@data_option
@click.option("--host", "control__host", metavar="ADDRESS", help="Address to listen on. Default: control.host.")
@click.option("--port", "control__port", type=int, help="Port to listen on. Default: control.port.")
def control(config_file: Path | None, data: str | None, **overrides: str | int | None) -> None:
    """Serve the admin API and the console at a separate address."""
    from slipstream.control_process import main

    raise_descriptor_limit()
    main(starting_settings(config_file, data, **overrides))
    leave()


@click.command()
@config_option
@data_option
@click.option("--model", "engine__model", metavar="PATH", help="Hugging Face folder or GGUF file.")
@click.option(
    "--name", "engine__name", help="Name under which the model is served. Default: the name of the folder or file."
)
@click.option("--host", "engine__host", metavar="ADDRESS", help="Address to listen on. Default: 127.0.0.1.")
@click.option("--port", "engine__port", type=int, help="Port to listen on.")
@click.option(
    "--context-tokens",
    "engine__context_tokens",
    type=int,
    help="Maximum length of prompt and output together. Default: the model's own limit.",
)
@click.option(
    "--speculation",
    "engine__speculation__method",
    type=click.Choice(["auto", "off", "ngram", "eagle"]),
    help="Source of drafts. Default: engine.speculation.method.",
)
@kv_budget_option
@metrics_port_option("engine")
def engine(config_file: Path | None, data: str | None, **overrides: str | int | None) -> None:
    """Run one embedded engine."""
    from engines.embedded.server import main

    raise_descriptor_limit()
    settings = starting_settings(config_file, data, **overrides)
    main(settings.engine, settings.token, settings.metrics_token, settings.tracing)
    leave()


@click.command()
@config_option
@data_option
@click.option(
    "--queue",
    "queues",
    type=click.Choice([queue.value for queue in Queue]),
    multiple=True,
    help="Queue to serve. Repeat for several. Default: all queues.",
)
@metrics_port_option("worker")
def worker(config_file: Path | None, data: str | None, queues: tuple[str, ...], **overrides: int | None) -> None:
    """Run a background worker with its schedule."""
    from slipstream.worker import main

    raise_descriptor_limit()
    main(starting_settings(config_file, data, **overrides), tuple(dict.fromkeys(map(Queue, queues))) or tuple(Queue))
    leave()
