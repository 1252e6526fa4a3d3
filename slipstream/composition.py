"""Composes a gateway's process: the data plane, and the control plane if it is mounted."""

from __future__ import annotations

import gc
import os
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

import msgspec

from control.fleet.seeding import Seeding
from control.webhooks.outbox import tell_crossing
from gateway.desired.store import DesiredStateStore
from gateway.instance import InstanceConfig
from gateway.services import Services, Surroundings
from slipstream.control_plane import ControlPlane
from slipstream.settings import Settings

if TYPE_CHECKING:
    from litestar.types import ControllerRouterHandler

    from control.api.call import CounterReader, KnownModels
    from control.console.oidc.provider import Provider
    from control.routes import ControlRoutes
    from control.sessions.config import OidcConfig
    from gateway.auth.keyring import Keyring


def instance_of(settings: Settings, instance: str) -> InstanceConfig:
    """The configuration of the gateway with this name: its stores, folder, secrets and fleet."""
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


class Beside(msgspec.Struct, frozen=True, kw_only=True):
    """The parts of the data plane that the control plane reads."""

    keyring: Keyring
    models: KnownModels
    counters: CounterReader
    replicas: Callable[[], object]
    """Returns every engine, as the router last reported."""
    leaving: Callable[[], bool]
    """Whether this process is about to end."""


def surroundings(settings: Settings, place: InstanceConfig) -> Surroundings:
    """The parts that a gateway gets from outside the data plane. Raises ConfigError if a secret is missing."""

    from infra.local.lock import held  # not needed by workers, which have no gateway

    def seeding(store: DesiredStateStore) -> Seeding:
        return Seeding(store, place.instance, place.models, place.pools)

    mount = _mount(settings) if settings.control.mounted else None
    kept = held(settings.data.lock_file)
    return Surroundings(seeding=seeding, crossing=tell_crossing, mount=mount, port_kept=kept)


def _mount(settings: Settings) -> Callable[[Services], ControlPlane]:
    parts = secrets_of(settings)

    def mount(services: Services) -> ControlPlane:
        beside = Beside(
            keyring=services.keyring,
            models=services.catalog,
            counters=services.limiter,
            replicas=services.replicas,
            leaving=lambda: services.draining,
        )
        # The loaded code stays forever, so the garbage collector need not scan it.
        return ControlPlane(lambda: control_of(settings, parts, beside), on_loaded=gc.freeze, describe=_with_batches)

    return mount


class Secrets(msgspec.Struct, frozen=True, kw_only=True):
    """Secrets of the control plane, and its identity provider if it has one."""

    pepper: bytes
    reader_token: str
    provider: Provider | None


def secrets_of(settings: Settings) -> Secrets:
    """Read the secrets at the start. Raises ConfigError if one is missing."""
    provider = _provider(settings.gateway.console.oidc)
    return Secrets(pepper=settings.pepper, reader_token=settings.reader_token, provider=provider)


def control_of(
    settings: Settings,
    secrets: Secrets,
    beside: Beside,
    own: Sequence[ControllerRouterHandler] = (),
    served: Mapping[str, str] | None = None,
) -> ControlRoutes:
    """Build the control plane. Loading its code takes a second. own, served: see `ControlRoutes`."""
    from control.api.api import AdminApi
    from control.api.services import AdminServices
    from control.batches.api import BatchApi
    from control.batches.store import store_of
    from control.console.console import Console
    from control.eval_runs.startable import ConfiguredSlices
    from control.router_view.control_client import RouterControl
    from control.routes import ControlRoutes
    from control.sessions.browsers import Browsers
    from gateway.app import SERVED

    config = settings.gateway
    router = RouterControl(config.router.control_address or settings.control_address, secrets.reader_token)
    browsers = Browsers(
        config.console,
        secrets.pepper,
        tls=bool(config.tls.certificate_file),
        trusted_proxies=config.connections.trusted_proxies,
    )
    admin = AdminApi(
        settings.database_url,
        secrets.pepper,
        config.admin,
        beside.models,
        beside.counters,
        ConfiguredSlices(settings.evals),
        config.console,
        router,
        replicas=beside.replicas,
    )
    console = Console(admin, browsers, config.console, secrets.pepper, secrets.provider)
    services = AdminServices(admin=admin, browsers=browsers, leaving=beside.leaving)
    batches = BatchApi(settings.database_url, beside.keyring, store_of(settings.batches, settings.data.path))
    return ControlRoutes(
        services,
        console,
        router,
        batches,
        config.requests,
        config.max_body_bytes,
        own,
        SERVED if served is None else served,
    )


def _with_batches(document: bytes) -> bytes:
    from control.batches.openapi import with_batches

    return with_batches(document)


def _provider(config: OidcConfig) -> Provider | None:
    if not config.issuer:
        return None
    from control.console.oidc.provider import Provider  # takes a quarter of a second

    return Provider(config, os.environ)
