"""Where one gateway instance stands."""

from __future__ import annotations

from pathlib import Path

import msgspec

from contracts.desired_state import Model, Pool
from telemetry.config import LoggingConfig, TracingConfig


class InstanceConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Where this instance stands: everything that differs between deployments and instances."""

    database_url: str
    valkey_url: str
    journal_folder: Path
    """Parent of all instances' journals; this one locks the folder named after `instance` in it."""
    instance: str
    """Stable over restarts: `0`, `1`, …"""
    token: str
    """What engines of pools without a key of their own are sent."""
    router_token: str
    """What the router knows gateways by."""
    pepper: bytes
    models: tuple[Model, ...] = ()
    pools: tuple[Pool, ...] = ()
    """The settings' models and pools; they seed the desired state. Empty: whatever the database holds."""
    currency: str = "USD"
    """What budgets are in, as refusals name it."""
    trace_retention_days: int
    """How long the worker keeps the traces of requests."""
    tracing: TracingConfig = TracingConfig()
    """Of every process of the deployment."""
    logging: LoggingConfig = LoggingConfig()
