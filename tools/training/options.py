"""The command-line options of every training command, and the schedule and settings that they define."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click
import torch

from contracts.errors import ConfigError
from tools.training.memory import keep_freed_memory
from tools.training.schedule import Schedule
from tools.training.trainer import Settings

Command = TypeVar("Command", bound=Callable[..., Any])


def run_options(command: Command) -> Command:
    """--run, --steps, --warmup, --decay, --lengths, rates, --seed, --device, --threads."""
    options = (
        click.option(
            "--run", type=click.Path(path_type=Path), required=True, help="Folder of the run; resumed if begun."
        ),
        click.option("--steps", default=1000, show_default=True, help="Optimizer steps in all."),
        click.option("--warmup", default=40, show_default=True, help="First steps, over which the rate rises."),
        click.option("--decay", default=0, show_default=True, help="Last steps, over which the rate falls to zero."),
        click.option("--lengths", default="512", show_default=True, help="Window lengths and shares: 512:0.9,2048:0.1"),
        click.option("--batch-tokens", default=4096, show_default=True, help="In one optimizer step."),
        click.option("--muon-rate", default=0.02, show_default=True, help="Peak rate of matrices."),
        click.option("--adam-rate", default=0.003, show_default=True, help="Peak rate of tables and norms."),
        click.option("--seed", default=1, show_default=True),
        click.option("--device", default="cpu", show_default=True, help="cpu, cuda or one of several: cuda:1."),
        click.option("--compiled", is_flag=True, help="Through torch.compile; needs a C++ compiler."),
        click.option("--threads", default=1, show_default=True, help="On a CPU; two runs of one beat one of two."),
    )
    for option in reversed(options):
        command = option(command)
    return command


def schedule_and_settings(given: dict[str, Any]) -> tuple[Schedule, Settings]:
    """Schedule and settings from the values of `run_options`. Sets torch's threads and keeps freed memory in this
    process. Raises ConfigError for a device that does not exist."""
    device = device_of(given["device"])
    torch.set_num_threads(given["threads"])
    keep_freed_memory()
    schedule = Schedule(
        steps=given["steps"],
        warmup=given["warmup"],
        decay=given["decay"],
        lengths=lengths(given["lengths"]),
        seed=given["seed"],
    )
    settings = Settings(
        batch_tokens=given["batch_tokens"],
        micro_tokens=2048 if device.type == "cpu" else 65536,
        muon_rate=given["muon_rate"],
        adam_rate=given["adam_rate"],
        device=given["device"],
        compiled=given["compiled"],
    )
    return schedule, settings


def device_of(text: str) -> torch.device:
    """`cpu`, `cuda` or `cuda:1`. Raises ConfigError for anything else, and if torch finds no such GPU."""
    kind, _, number = text.partition(":")
    if text == "cpu":
        return torch.device(text)
    if kind != "cuda" or (number and not number.isdecimal()):
        raise ConfigError(f"--device: {text!r} is neither cpu nor cuda nor like cuda:1", param="device")
    found = torch.cuda.device_count()
    if int(number or 0) >= found:
        raise ConfigError(
            f"--device: {text} was asked for, and torch finds {found} CUDA devices; give cpu, or one of those",
            param="device",
        )
    return torch.device(text)


def lengths(text: str) -> dict[int, float]:
    """`512` or `512:0.9,2048:0.1`. Raises ConfigError for anything else."""
    shares: dict[int, float] = {}
    for part in text.split(","):
        length, _, share = part.partition(":")
        try:
            shares[int(length)] = float(share or 1)
        except ValueError:
            raise ConfigError(f"--lengths: {text!r} is not like 512:0.9,2048:0.1", param="lengths") from None
    return shares
