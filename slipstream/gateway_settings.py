"""Settings of a gateway's process: the data plane's, and those of the control plane that is mounted on its port."""

from __future__ import annotations

from control.api.config import AdminConfig
from control.sessions.config import ConsoleConfig
from gateway.config import GatewayConfig


class GatewaySettings(GatewayConfig, frozen=True, forbid_unknown_fields=True):
    """One gateway instance with what administers the deployment. The same for all instances of a deployment."""

    admin: AdminConfig = AdminConfig()
    """The admin API and webhooks."""
    console: ConsoleConfig = ConsoleConfig()
    """The console, and signing in to it."""
