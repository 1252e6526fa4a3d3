"""Addresses, folders and secrets of one gateway instance."""

from __future__ import annotations

from pathlib import Path

import msgspec

from contracts.desired_state import Model, Pool
from telemetry.config import LoggingConfig, TracingConfig


class InstanceConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that differs between deployments and instances."""

    database_url: str
    valkey_url: str
    journal_folder: Path
    """Parent of all instances' journals; this one locks the folder named after `instance` in it."""
    instance: str
    """Stable across restarts: `0`, `1`, …"""
    token: str
    """Token for engines of pools without a key of their own."""
    router_token: str
    """Token by which the router authenticates gateways."""
    pepper: bytes
    models: tuple[Model, ...] = ()
    pools: tuple[Pool, ...] = ()
    """The settings' models and pools, which seed the desired state; empty to use the database's state."""
    currency: str = "USD"
    """Currency of budgets, which refusals show."""
    trace_retention_days: int
    """How long the worker keeps request traces."""
    tracing: TracingConfig = TracingConfig()
    """Tracing, the same for all processes of the deployment."""
    logging: LoggingConfig = LoggingConfig()
