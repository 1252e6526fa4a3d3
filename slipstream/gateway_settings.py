"""Settings of a gateway's process: those of the data plane and the control plane, and the control plane's address."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from control.api.config import AdminConfig
from control.sessions.config import ConsoleConfig
from gateway.config import GatewayConfig


class GatewaySettings(GatewayConfig, frozen=True, forbid_unknown_fields=True):
    """The settings of all gateway instances of a deployment, including the admin API and the console."""

    admin: AdminConfig = AdminConfig()
    """The admin API and webhooks."""
    console: ConsoleConfig = ConsoleConfig()
    """The console and its sign-in."""


class ControlConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The address of the admin API and the console. Their other settings: `gateway.admin`, `gateway.console`."""

    mounted: bool = True
    """Serve the admin API and the console on the gateways' port. If false, `slipstream control` serves them at a
    separate address, so that an operator's query never shares a process with customers' streams."""
    host: str = "127.0.0.1"
    """Address that `slipstream control` listens on."""
    port: Annotated[int, Meta(ge=1, le=65_535)] = 8001
    """Port that `slipstream control` listens on."""
