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
    """Deliver to addresses of private networks and of this machine too, and over plain http. Turn on only if everyone
    who may set a webhook may also reach those networks: otherwise they could make this deployment call services
    there."""
    timeout_s: Fixed[Annotated[float, Meta(gt=0, le=60)]] = 10.0
    """Longest wait for a receiver, from looking up its name to the end of its answer."""
    attempts: Fixed[Annotated[int, Meta(ge=1, le=30)]] = 12
    """Deliveries tried before one counts as failed. With the pauses below, twelve take 14 to 29 hours."""
    first_pause_s: Fixed[Annotated[float, Meta(gt=0, le=3_600)]] = 15.0
    """Pause after the first failed attempt; each one after is three times as long."""
    longest_pause_s: Fixed[Annotated[float, Meta(gt=0, le=86_400)]] = 21_600.0
    """Upper bound of the pauses."""
    concurrency: Fixed[Annotated[int, Meta(ge=1, le=1_000)]] = 128
    """Deliveries under way at once in one worker."""
    organization_concurrency: Fixed[Annotated[int, Meta(ge=1, le=1_000)]] = 8
    """Of these, one organization's at most; not above `concurrency`. So many organizations whose receivers never answer
    as fit into `concurrency` hold up the others."""
    endpoint_concurrency: Fixed[Annotated[int, Meta(ge=1, le=1_000)]] = 4
    """Of these, one webhook's at most; not above `concurrency`."""
    pending_tests: Fixed[Annotated[int, Meta(ge=1, le=1_000)]] = 10
    """`webhook.test` events of one organization that may wait for their delivery; a further one is refused with 409."""
    kept_days: Annotated[int, Meta(ge=1, le=3_650)] = 30
    """How long events and the log of their deliveries are kept."""


class MostObjects(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Limits of the number of objects of one organization, by kind; one more is refused with 409."""

    projects: Count = 1_000
    """Projects that are enabled."""
    keys: Count = 10_000
    """API keys of all its projects that are neither revoked nor expired."""
    members: Count = 1_000
    """Members, disabled ones included."""
    service_accounts: Fixed[Count] = 200
    """Service accounts, disabled ones included."""
    admin_keys: Fixed[Count] = 1_000
    """Admin keys of all its members and service accounts that are neither revoked nor expired."""
    webhooks: Fixed[Count] = 20
    """Webhooks."""


class AdminConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The admin API, `/admin/v1`."""

    connections: Fixed[Annotated[int, Meta(ge=1, le=100)]] = 6
    """Database connections of one gateway for it; inference has others. One organization uses half of them at most, and
    the last one is for the operating organization alone."""
    organization_reports: Fixed[Annotated[int, Meta(ge=1, le=100)]] = 2
    """Of these, one organization's limit for concurrent reads that add up a period, such as a diagnosis; a further one
    is refused with 429. Such reads of all organizations but the operating one leave one connection free."""
    organization_writes_per_second: Annotated[float, Meta(gt=0, le=10_000)] = 5.0
    """Changes that one organization may ask of one gateway each second, over time; ten times as many at once. A further
    one is refused with 429. The operating organization has no such bound."""
    organization_writes_per_day: Fixed[Annotated[int, Meta(ge=1, le=1_000_000_000)]] = 20_000
    """The same for a day. It limits what an organization adds to the audit log, which is never shortened, and how many
    responses to repeated requests are kept."""
    most: MostObjects = MostObjects()
    """Objects that one organization may have."""
    timeout_s: Fixed[Annotated[float, Meta(gt=0, le=55)]] = 10.0
    """Longest time one request may take, waiting for a connection included; after it the answer is 503."""
    max_body_bytes: Fixed[Annotated[int, Meta(ge=1_024, le=1_048_576)]] = 65_536
    """Largest body taken."""
    currency: Annotated[str, Meta(pattern="^[A-Z]{3}$", description="a code of three capitals, such as EUR")] = "USD"
    """Currency of all prices, budgets and invoices: an ISO 4217 code. It is only shown: changing it converts no
    amount."""
    webhooks: WebhooksConfig = WebhooksConfig()
    """Events for customers' own servers."""
    events: EventsConfig = EventsConfig()
    """Streams that keep pages current."""
