"""Prices of models, each for a period. A price that has begun never changes: a new price ends it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from difflib import get_close_matches
from typing import Annotated, Any

import asyncpg
import msgspec
from sqlalchemy import ARRAY, ColumnElement, Text, any_, delete, exists, func, insert, literal, select, update

from contracts.errors import Conflict, InvalidField
from control.api.call import AdminCall
from control.api.moments import moment
from control.api.pages import page_of
from control.api.schemas import Body, LongPageQuery, ModelName, Moment, Page
from gateway.metering.pricing.price import MAX_MICRO
from storage.rows import columns_of, equal, fetchrow, record_of
from storage.tables.metering import prices

NOTICE = timedelta(seconds=60)
"""Shortest time until a changed price or an end takes effect, so that all gateways know it by then and bill alike."""
ON_ITS_WAY = timedelta(seconds=5)
"""Tolerated delay of a request for the earliest time."""
Rate = Annotated[int, msgspec.Meta(ge=0, le=MAX_MICRO)]
Percent = Annotated[int, msgspec.Meta(ge=0, le=100)]
USUAL_OFFLINE_PERCENT = 50


class ModelPrice(msgspec.Struct, frozen=True, kw_only=True):
    """Rates in millionths of the deployment's currency per million tokens. valid_until: null for no end.
    offline_percent: the percentage of the rates that a request in the class `offline` costs. Batches and requests with
    `service_tier: "flex"` are in this class.

    served: whether the deployment serves the model now. If not, the model may be added later, or its name is misspelt.
    """

    version: int
    model: str
    served: bool
    currency: str
    valid_from: datetime
    valid_until: datetime | None
    input_micro: int
    cached_input_micro: int
    cache_write_micro: int
    output_micro: int
    offline_percent: int
    created_at: datetime


class CreatedPrice(ModelPrice, frozen=True, kw_only=True):
    """The created price. warning: a probable mistake, or null. A price may be set before its model is served, so an
    unserved name is accepted with a warning."""

    warning: str | None


class NewPrice(Body, frozen=True, kw_only=True):
    """valid_from: by default, one minute from now, which is also the earliest time. A model's first price may begin at
    any time, by default now. It applies once a gateway has received it, within a second; earlier requests cost nothing.
    If the current price has no end, it ends at `valid_from`.

    cached_input_micro: by default, a tenth of input_micro. cache_write_micro: by default, input_micro. offline_percent:
    the percentage of the rates that a request in the class `offline` costs; by default, 50.
    """

    model: ModelName
    input_micro: Rate
    output_micro: Rate
    cached_input_micro: Rate | None = None
    cache_write_micro: Rate | None = None
    offline_percent: Percent = USUAL_OFFLINE_PERCENT
    valid_from: Moment | None = None
    valid_until: Moment | None = None


class PriceChanges(Body, frozen=True, kw_only=True):
    """Only the end of a price can change: to at least one minute from now, or to null for no end."""

    valid_until: Moment | None


class PriceQuery(LongPageQuery, frozen=True, kw_only=True):
    """Filters."""

    model: ModelName | None = None


async def list_prices(call: AdminCall, query: PriceQuery) -> Page[ModelPrice]:
    """List all prices, including past ones, the newest version first."""
    statement = select(*_columns(call)).where(equal(prices.c.model, query.model))  # prices belong to no organization
    return await page_of(call.connection, ModelPrice, statement, query, prices.c.version)


async def create_price(call: AdminCall, body: NewPrice) -> CreatedPrice:
    """Set a model's price from a given time on.

    A price for a model that is not served is created too; the response then contains a `warning`.
    """
    await _one_at_a_time(call, body.model)
    now = datetime.now(UTC)
    first = not await call.value(select(exists().where(prices.c.model == body.model)))
    earliest = now if first else now + NOTICE
    valid_from = earliest if body.valid_from is None else moment(body.valid_from, "valid_from")
    if not first:
        _require_notice(valid_from, "valid_from")
    valid_until = None if body.valid_until is None else moment(body.valid_until, "valid_until")
    if valid_until is not None and valid_until <= valid_from:
        raise InvalidField("Invalid value for 'valid_until': it is not after 'valid_from'.", param="valid_until")
    ended = await fetchrow(
        call.connection,
        update(prices)
        .where(prices.c.model == body.model, prices.c.valid_until.is_(None), prices.c.valid_from < valid_from)
        .values(valid_until=valid_from, ended_by_next=True)
        .returning(*_columns(call)),
    )
    try:
        price = await call.one(
            ModelPrice,
            insert(prices)
            .values(
                model=body.model,
                valid_from=valid_from,
                valid_until=valid_until,
                input_micro=body.input_micro,
                cached_input_micro=body.input_micro // 10
                if body.cached_input_micro is None
                else body.cached_input_micro,
                cache_write_micro=body.input_micro if body.cache_write_micro is None else body.cache_write_micro,
                output_micro=body.output_micro,
                offline_percent=body.offline_percent,
            )
            .returning(*_columns(call)),
        )
    except asyncpg.ExclusionViolationError:
        raise Conflict(f"The model {body.model!r} already has a price in that period; end it first.") from None
    before = None if ended is None else record_of(ModelPrice, ended)
    call.audit("price.create", price.version, organization_id=None, before=before, after=price)
    warning = None if price.served else _not_served(price.model, [model.name for model in call.fleet.models])
    return CreatedPrice(**msgspec.structs.asdict(price), warning=warning)


async def update_price(call: AdminCall, price_version: str, body: PriceChanges) -> ModelPrice:
    """Set or remove a price's end, which must be at least one minute from now."""
    before = await _locked_price(call, price_version)
    valid_until = None if body.valid_until is None else moment(body.valid_until, "valid_until")
    if valid_until is not None and valid_until <= before.valid_from:
        raise InvalidField("Invalid value for 'valid_until': it is not after 'valid_from'.", param="valid_until")
    if valid_until is not None:
        _require_notice(valid_until, "valid_until")
    try:
        after = await call.one(
            ModelPrice,
            update(prices)
            .where(prices.c.version == before.version)
            .values(valid_until=valid_until, ended_by_next=False)
            .returning(*_columns(call)),
        )
    except asyncpg.ExclusionViolationError:
        raise Conflict(f"The model {before.model!r} has another price by then.") from None
    except asyncpg.RestrictViolationError:
        raise Conflict(
            f"The price {before.version} has ended and cannot be changed, because usage was billed at it."
        ) from None
    call.audit("price.update", after.version, organization_id=None, before=before, after=after)
    return after


async def delete_price(call: AdminCall, price_version: str) -> ModelPrice:
    """Delete a price that has not begun, and return it.

    The previous price then continues until the next one, if any, as if the deleted price had never existed. An end that
    an administrator set remains.
    """
    before = await _locked_price(call, price_version)
    if _too_soon(before.valid_from):
        raise Conflict(
            f"The price {before.version} has begun or begins within a minute, so gateways already use it and it "
            "cannot be changed. End it instead."
        )
    try:
        await call.value(delete(prices).where(prices.c.version == before.version))
    except asyncpg.RestrictViolationError:
        raise Conflict(f"The price {before.version} has begun and cannot be deleted; end it instead.") from None
    call.audit("price.delete", before.version, organization_id=None, before=before)
    later = prices.alias("later").c
    following = (
        select(func.min(later.valid_from))
        .where(later.model == before.model, later.valid_from > before.valid_from)
        .scalar_subquery()
    )
    continued = await fetchrow(
        call.connection,
        update(prices)
        .where(prices.c.model == before.model, prices.c.valid_until == before.valid_from, prices.c.ended_by_next)
        .values(valid_until=following, ended_by_next=following.is_not(None))
        .returning(*_columns(call)),
    )
    if continued is not None:
        after = record_of(ModelPrice, continued)
        until = msgspec.structs.replace(after, valid_until=before.valid_from)
        call.audit("price.update", after.version, organization_id=None, before=until, after=after)
    return before


async def _one_at_a_time(call: AdminCall, model: str) -> None:
    """Serialize changes: creating or deleting a price depends on other prices, which it reads first."""
    await call.connection.execute("SELECT pg_advisory_xact_lock(hashtextextended($1, 1886546275))", model)


async def _locked_price(call: AdminCall, version: str) -> ModelPrice:
    """The price, locked with the others of its model. Raises NotFound."""
    await _one_at_a_time(call, (await find_price(call, version, for_update=False)).model)
    return await find_price(call, version)


def _columns(call: AdminCall) -> list[ColumnElement[Any]]:
    served = prices.c.model == any_(literal([model.name for model in call.fleet.models], ARRAY(Text)))
    return columns_of(ModelPrice, prices, served=served, currency=literal(call.currency))


def _not_served(model: str, served: list[str]) -> str:
    meant = "".join(f"; did you mean {name!r}?" for name in get_close_matches(model, served, 1)) or "."
    return (
        f"This deployment serves no model {model!r} (it serves: {', '.join(served) or 'none'}){meant} The price "
        "applies once a model of this name is served."
    )


def _too_soon(at: datetime) -> bool:
    """Whether a gateway may not know a change in time: gateways bill by the prices that they know."""
    return at < datetime.now(UTC) + NOTICE - ON_ITS_WAY


def _require_notice(at: datetime, field: str) -> None:
    if _too_soon(at):
        raise InvalidField(
            f"Invalid value for '{field}': a price can change a minute from now at the earliest, because past usage "
            "is already billed and gateways apply money limits at the prices that they know.",
            param=field,
        )


async def find_price(call: AdminCall, version: str, *, for_update: bool = True) -> ModelPrice:
    """Find a price. for_update: lock it until the transaction ends. Raises NotFound."""
    number = int(version) if version.isascii() and version.isdigit() and len(version) < 19 else 0
    statement = select(*_columns(call)).where(prices.c.version == number)
    if for_update:
        statement = statement.with_for_update()
    return await call.find(ModelPrice, statement, "price", version[:20])
