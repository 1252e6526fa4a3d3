"""Composes a gateway's process: the data plane, and the control plane that it mounts on its port."""

from __future__ import annotations

import gc
import os
from typing import TYPE_CHECKING

from control.fleet.seeding import Seeding
from control.webhooks.outbox import tell_crossing
from gateway.desired.store import DesiredStateStore
from gateway.instance import InstanceConfig
from gateway.services import Services, Surroundings
from slipstream.control_plane import Control, ControlPlane
from slipstream.settings import Settings

if TYPE_CHECKING:
    from control.console.oidc.provider import Provider
    from control.sessions.config import OidcConfig


def instance_of(settings: Settings, instance: str) -> InstanceConfig:
    """Where the gateway of this name stands."""
    return InstanceConfig(
        database_url=settings.database_url,
        valkey_url=settings.valkey_url,
        journal_folder=settings.data.journal,
        instance=instance,
        token=settings.token,
        router_token=settings.router_token,
        pepper=settings.pepper,
        models=settings.models,
        pools=settings.desired_pools,
        currency=settings.currency,
        trace_retention_days=settings.worker.ledger.trace_retention_days,
        tracing=settings.tracing,
        logging=settings.logging,
    )


def surroundings(settings: Settings, place: InstanceConfig) -> Surroundings:
    """What a gateway of these settings is handed. Raises ConfigError where a secret is missing."""
    provider, reader_token = _provider(settings.gateway.console.oidc), settings.reader_token

    def seeding(store: DesiredStateStore) -> Seeding:
        return Seeding(store, place.instance, place.models, place.pools)

    def mount(services: Services) -> ControlPlane:
        # The loaded code stays for ever, so the garbage collector need not search it.
        return ControlPlane(
            lambda: _control(settings, place.pepper, reader_token, services, provider),
            on_loaded=gc.freeze,
            describe=_with_batches,
        )

    return Surroundings(seeding=seeding, crossing=tell_crossing, mount=mount)


def _control(
    settings: Settings, pepper: bytes, reader_token: str, services: Services, provider: Provider | None
) -> Control:
    """The control plane beside a running data plane. Loading its code takes a second."""
    from control.api.api import AdminApi
    from control.api.services import AdminServices
    from control.batches.api import BatchApi
    from control.batches.store import store_of
    from control.console.console import Console
    from control.eval_runs.startable import ConfiguredSlices
    from control.router_view.control_client import RouterControl
    from control.routes import ControlRoutes
    from control.sessions.browsers import Browsers

    config = settings.gateway
    address = config.router.control_address or settings.control_address
    router = RouterControl(address, reader_token)
    browsers = Browsers(
        config.console,
        pepper,
        tls=bool(config.tls.certificate_file),
        trusted_proxies=config.connections.trusted_proxies,
    )
    admin = AdminApi(
        settings.database_url,
        pepper,
        config.admin,
        services.catalog,
        services.limiter,
        ConfiguredSlices(settings.evals),
        config.console,
        router,
        replicas=services.replicas,
    )
    console = Console(admin, browsers, config.console, pepper, provider)
    of_admin = AdminServices(admin=admin, browsers=browsers, leaving=lambda: services.draining)
    batches = BatchApi(settings.database_url, services.keyring, store_of(settings.batches, settings.data.path))
    return ControlRoutes(of_admin, console, router, batches, config.requests, config.max_body_bytes)


def _with_batches(document: bytes) -> bytes:
    from control.batches.openapi import with_batches

    return with_batches(document)


def _provider(config: OidcConfig) -> Provider | None:
    if not config.issuer:
        return None
    from control.console.oidc.provider import Provider  # which takes a quarter of a second

    return Provider(config, os.environ)
