"""Settings of the admin API and of webhooks."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from contracts.fixed import Fixed
from control.api.events.config import EventsConfig

Count = Annotated[int, Meta(ge=1, le=10_000_000)]


class WebhooksConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Delivery of events to organizations' URLs."""

    allow_private_addresses: bool = False
    """Deliver also to addresses of private networks and of this machine, and over plain http. Turn this on only if
    everyone who may create a webhook may also reach those networks; otherwise they could make this deployment call
    services there."""
    timeout_s: Fixed[Annotated[float, Meta(gt=0, le=60)]] = 10.0
    """Longest time for one delivery, from the lookup of the receiver's name to the end of its response."""
    attempts: Fixed[Annotated[int, Meta(ge=1, le=30)]] = 12
    """Number of attempts after which a delivery has failed. With the pauses below, twelve attempts take 14 to 29 hours.
    """
    first_pause_s: Fixed[Annotated[float, Meta(gt=0, le=3_600)]] = 15.0
    """Pause after the first failed attempt. Each further pause is three times as long."""
    longest_pause_s: Fixed[Annotated[float, Meta(gt=0, le=86_400)]] = 21_600.0
    """Upper bound of the pauses."""
    concurrency: Fixed[Annotated[int, Meta(ge=1, le=1_000)]] = 128
    """Concurrent deliveries of one worker."""
    organization_concurrency: Fixed[Annotated[int, Meta(ge=1, le=1_000)]] = 8
    """Concurrent deliveries of one organization, at most `concurrency`. Organizations whose receivers never respond
    delay the others only if there are enough of them to use up `concurrency`."""
    endpoint_concurrency: Fixed[Annotated[int, Meta(ge=1, le=1_000)]] = 4
    """Concurrent deliveries of one webhook, at most `concurrency`."""
    pending_tests: Fixed[Annotated[int, Meta(ge=1, le=1_000)]] = 10
    """Maximum number of one organization's `webhook.test` events that await delivery. A further one is refused with
    409."""
    kept_days: Annotated[int, Meta(ge=1, le=3_650)] = 30
    """Days for which events and their delivery logs are kept."""


class MostObjects(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Maximum number of objects of one organization, by kind. A further one is refused with 409."""

    projects: Count = 1_000
    """Enabled projects."""
    keys: Count = 10_000
    """Inference keys of all its projects that are neither revoked nor expired."""
    members: Count = 1_000
    """Members, including disabled ones."""
    service_accounts: Fixed[Count] = 200
    """Service accounts, including disabled ones."""
    admin_keys: Fixed[Count] = 1_000
    """Admin keys of all its members and service accounts that are neither revoked nor expired."""
    webhooks: Fixed[Count] = 20
    """Webhooks."""


class AdminConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The admin API, `/admin/v1`."""

    connections: Fixed[Annotated[int, Meta(ge=1, le=100)]] = 6
    """Database connections of one gateway for the admin API; inference has its own. One organization uses at most half
    of them, and the last one is reserved for the operating organization."""
    organization_reports: Fixed[Annotated[int, Meta(ge=1, le=100)]] = 2
    """Maximum number of one organization's concurrent reads that aggregate a period, such as a diagnosis. A further one
    is refused with 429. Such reads of all organizations except the operating one always leave one connection free."""
    organization_writes_per_second: Annotated[float, Meta(gt=0, le=10_000)] = 5.0
    """Sustained number of changes per second that one organization may make at one gateway, with bursts of ten times as
    many. A further one is refused with 429. The operating organization has no such limit."""
    organization_writes_per_day: Fixed[Annotated[int, Meta(ge=1, le=1_000_000_000)]] = 20_000
    """Number of changes that one organization may make at one gateway per day. It limits how much an organization adds
    to the audit log, which is never shortened, and how many responses to repeated requests are kept."""
    most: MostObjects = MostObjects()
    """Objects that one organization may have."""
    timeout_s: Fixed[Annotated[float, Meta(gt=0, le=55)]] = 10.0
    """Time limit of one request, including the wait for a connection. After it, the response is 503."""
    max_body_bytes: Fixed[Annotated[int, Meta(ge=1_024, le=1_048_576)]] = 65_536
    """Maximum size of a request body."""
    currency: Annotated[str, Meta(pattern="^[A-Z]{3}$", description="a code of three capitals, such as EUR")] = "USD"
    """Currency of all prices, budgets and invoices, as an ISO 4217 code. It is only a label: changing it converts no
    amounts."""
    webhooks: WebhooksConfig = WebhooksConfig()
    """Events for customers' own servers."""
    events: EventsConfig = EventsConfig()
    """Streams that keep pages current."""
