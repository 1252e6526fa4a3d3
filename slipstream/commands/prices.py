"""`slipstream customers prices`: what a model's tokens cost, from when until when."""

from __future__ import annotations

import sys
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import click

from contracts.errors import InvalidField, NotFound
from slipstream.commands.options import Deployment, deployment_options
from slipstream.hints import command
from slipstream.listing import json_option, show
from slipstream.money import Money, told

if TYPE_CHECKING:
    from control.api.call import AdminCall
    from control.billing.prices import CreatedPrice, ModelPrice

MOMENT = click.DateTime(["%Y-%m-%d", "%Y-%m-%dT%H:%M", "%Y-%m-%dT%H:%M:%S"])


@click.group()
def prices() -> None:
    """List, set and end prices of models, per million tokens.

    Amounts are in units of the currency.

    \b
    Examples:
      slipstream customers prices set slipstream-chat --input 0.20 --output 0.80
      slipstream customers prices set slipstream-chat --input 0.25 --output 1 --from 2027-01-01
      slipstream customers prices list
      slipstream customers prices end slipstream-chat
    """


@prices.command(name="list")
@deployment_options
@click.option("--model", help="Only this model's.")
@json_option
def list_command(deployment: Deployment, model: str | None, as_json: bool) -> None:
    """List prices, past and coming ones too, the newest first; and which models have none."""
    from slipstream.administration import administer

    async def work(call: AdminCall) -> tuple[list[ModelPrice], bool, list[str]]:
        found, more = await _prices(call, model)
        served = {each.name for each in call.fleet.models if model in (None, each.name)}
        return found, more, sorted(served - {each.model for each in found if _state(each) == "in force"})

    found, more, free = administer(deployment, work)
    columns: dict[str, Callable[[ModelPrice], object]] = {
        "version": lambda each: each.version,
        "model": lambda each: each.model + ("" if each.served else " (not served)"),
        "state": _state,
        "from (UTC)": lambda each: _moment(each.valid_from),
        "until (UTC)": lambda each: "-" if each.valid_until is None else _moment(each.valid_until),
        "input": lambda each: told(each.input_micro, each.currency),
        "cached": lambda each: told(each.cached_input_micro, each.currency),
        "cache write": lambda each: told(each.cache_write_micro, each.currency),
        "output": lambda each: told(each.output_micro, each.currency),
    }
    show(found, columns, as_json=as_json, more="/prices" if more else "")
    if free and not more:
        print(f"without a price now, so free: {', '.join(free)}", file=sys.stderr)


@prices.command(name="set")
@deployment_options
@click.option("--input", "input_micro", type=Money(), required=True, help="For a million prompt tokens.")
@click.option("--output", "output_micro", type=Money(), required=True, help="For a million generated tokens.")
@click.option(
    "--cached-input",
    "cached_input_micro",
    type=Money(),
    help="Prompt tokens already in the cache. Default: a tenth of input.",
)
@click.option(
    "--cache-write", "cache_write_micro", type=Money(), help="Prompt tokens put in a cache. Default: as input."
)
@click.option(
    "--from", "valid_from", type=MOMENT, metavar="DATE", help="UTC. Default: now for a first price, else in a minute."
)
@click.option("--until", "valid_until", type=MOMENT, metavar="DATE", help="UTC. Default: until another price is set.")
@click.argument("model")
def set_command(deployment: Deployment, model: str, **given: int | datetime | None) -> None:
    """Set the price of MODEL from a moment on; the price before ends there."""
    from control.billing.prices import NewPrice, create_price
    from slipstream.administration import administer, converted

    fields = {name: _utc(value) if isinstance(value, datetime) else value for name, value in given.items()}
    body = converted({"model": model, **fields}, NewPrice)

    async def work(call: AdminCall) -> CreatedPrice:
        return await create_price(call, body)

    price = administer(deployment, work)
    print(f"{_spoken(price)} from {_moment(price.valid_from)} UTC on (version {price.version})")
    if price.warning is not None:
        print(
            f"warning: {price.warning} Take it back: {command(f'customers prices end {price.version}')}",
            file=sys.stderr,
        )


@prices.command()
@deployment_options
@click.option("--at", type=MOMENT, metavar="DATE", help="UTC. Default: in a minute, the earliest there is.")
@click.argument("which")
def end(deployment: Deployment, at: datetime | None, which: str) -> None:
    """End the price WHICH, a model or a version; one that has not begun is taken back, and the one before goes on."""
    from control.billing.prices import NOTICE, PriceChanges, delete_price, update_price
    from slipstream.administration import administer

    async def work(call: AdminCall) -> tuple[ModelPrice, bool]:
        price = await _named(call, which)
        if _state(price) == "coming":
            taken_back: ModelPrice = await delete_price(call, str(price.version))
            return taken_back, True
        until = datetime.now(UTC) + NOTICE + timedelta(seconds=1) if at is None else _utc(at)
        ended: ModelPrice = await update_price(call, str(price.version), PriceChanges(valid_until=until))
        return ended, False

    price, taken_back = administer(deployment, work)
    if taken_back:
        print(f"taken back, before it began: {_spoken(price)}")
    else:
        assert price.valid_until is not None
        print(f"ends at {_moment(price.valid_until)} UTC: {_spoken(price)}; then the model is free until priced again")


async def _prices(call: AdminCall, model: str | None) -> tuple[list[ModelPrice], bool]:
    from control.billing.prices import PriceQuery, list_prices

    page = await list_prices(call, PriceQuery(limit=100, model=model))
    return page.data, page.has_more


async def _named(call: AdminCall, which: str) -> ModelPrice:
    """By version; or the one price of a model that has not ended. Raises NotFound, InvalidField."""
    from control.billing.prices import find_price

    if which.isdecimal():
        return await find_price(call, which)
    found = [each for each in (await _prices(call, which))[0] if _state(each) != "ended"]
    if not found:
        raise NotFound(f"price {which!r}: no model of this name has a price in force or coming")
    if len(found) > 1:
        versions = ", ".join(f"{each.version} ({_state(each)})" for each in found)
        raise InvalidField(
            f"model {which!r}: it has several prices; name one by its version: {versions}", param="which"
        )
    return found[0]


def _spoken(price: ModelPrice) -> str:
    rates = {"input": price.input_micro, "cached input": price.cached_input_micro, "output": price.output_micro}
    spoken = ", ".join(f"{told(micro, price.currency)} for {what}" for what, micro in rates.items())
    return f"{price.model}: {spoken}, a million tokens"


def _state(price: ModelPrice) -> str:
    now = datetime.now(UTC)
    if price.valid_from > now:
        return "coming"
    return "in force" if price.valid_until is None or price.valid_until > now else "ended"


def _utc(value: datetime) -> datetime:
    return value.replace(tzinfo=UTC)


def _moment(value: datetime) -> str:
    return f"{value.astimezone(UTC):%Y-%m-%d %H:%M:%S}"
