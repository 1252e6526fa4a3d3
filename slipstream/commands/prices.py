"""`slipstream customers prices`: the prices of a model's tokens and their periods."""

from __future__ import annotations

import sys
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import click

from contracts.errors import InvalidField, NotFound
from slipstream.hints import command
from slipstream.money import Money, told
from slipstream.operated import MAX_LISTED, AdminOperation, Noted, listed, operated

if TYPE_CHECKING:
    from control.api.call import AdminCall
    from control.api.schemas import Page
    from control.billing.prices import CreatedPrice, ModelPrice


class Utc(click.DateTime):
    """A moment without a zone, taken as UTC."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        return super().convert(value, param, ctx).replace(tzinfo=UTC)


MOMENT = Utc(["%Y-%m-%d", "%Y-%m-%dT%H:%M", "%Y-%m-%dT%H:%M:%S"])


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


async def _listed(call: AdminCall, options: dict[str, Any]) -> Noted:
    model = options["model"]
    found = await _prices(call, model)
    served = {each.name for each in call.fleet.models if model in (None, each.name)}
    priced = {each.model for each in found.data if _state(each) == "in force"}
    free = [] if found.has_more else sorted(served - priced)
    return Noted(found, [f"without a current price, hence free: {', '.join(free)}"] if free else [])


@listed(
    prices,
    _listed,
    {
        "version": "version",
        "model": lambda each: each.model + ("" if each.served else " (not served)"),
        "state": lambda each: _state(each),
        "from (UTC)": lambda each: _moment(each.valid_from),
        "until (UTC)": lambda each: "-" if each.valid_until is None else _moment(each.valid_until),
        "input": lambda each: told(each.input_micro, each.currency),
        "cached": lambda each: told(each.cached_input_micro, each.currency),
        "cache write": lambda each: told(each.cache_write_micro, each.currency),
        "output": lambda each: told(each.output_micro, each.currency),
        "offline": lambda each: f"{each.offline_percent} %",
    },
    more="/prices",
)
@click.option("--model", help="Only prices of this model.")
def list_command() -> None:
    """List past, current and coming prices, newest first, and the models without a price."""


@operated(prices, AdminOperation("billing.prices.create_price"), "set")
@click.option("--input", "input_micro", type=Money(), required=True, help="Price of a million prompt tokens.")
@click.option("--output", "output_micro", type=Money(), required=True, help="Price of a million generated tokens.")
@click.option(
    "--cached-input",
    "cached_input_micro",
    type=Money(),
    help="Price of a million prompt tokens that are already in the cache. Default: a tenth of --input.",
)
@click.option(
    "--cache-write",
    "cache_write_micro",
    type=Money(),
    help="Price of a million prompt tokens that are written to the cache. Default: --input.",
)
@click.option(
    "--offline",
    "offline_percent",
    type=click.IntRange(0, 100),
    default=50,
    show_default=True,
    metavar="PERCENT",
    help="Price of batches and other offline requests, in percent of the full price.",
)
@click.option(
    "--from",
    "valid_from",
    type=MOMENT,
    metavar="DATE",
    help="Start of the price (UTC). Default: now for a first price, otherwise in a minute.",
)
@click.option(
    "--until",
    "valid_until",
    type=MOMENT,
    metavar="DATE",
    help="End of the price (UTC). Default: until another price is set.",
)
@click.argument("model")
def set_command(price: CreatedPrice) -> str:
    """Set the price of MODEL from a given time. The previous price ends at that time."""
    if price.warning is not None:
        to_end = command(f"customers prices end {price.version}")
        print(f"warning: {price.warning} To withdraw the price: {to_end}", file=sys.stderr)
    return f"{_spoken(price)} from {_moment(price.valid_from)} UTC on (version {price.version})"


async def _end(call: AdminCall, options: dict[str, Any]) -> ModelPrice:
    from control.billing.prices import NOTICE, PriceChanges, delete_price, update_price

    price = await _named(call, options["which"])
    if _state(price) == "coming":
        return await delete_price(call, str(price.version))
    until = options["at"] or datetime.now(UTC) + NOTICE + timedelta(seconds=1)
    return await update_price(call, str(price.version), PriceChanges(valid_until=until))


@operated(prices, _end)
@click.option(
    "--at",
    type=MOMENT,
    metavar="DATE",
    help="End of the price (UTC). Default: in a minute, the earliest possible time.",
)
@click.argument("which")
def end(price: ModelPrice) -> str:
    """End the price WHICH (a model or a version). A price that has not begun is withdrawn, and the previous one
    continues."""
    if _state(price) == "coming":
        return f"withdrawn before it took effect: {_spoken(price)}"
    assert price.valid_until is not None
    return (
        f"ends at {_moment(price.valid_until)} UTC: {_spoken(price)}; then the model is free until it has a new price"
    )


async def _prices(call: AdminCall, model: str | None) -> Page[ModelPrice]:
    from control.billing.prices import PriceQuery, list_prices

    return await list_prices(call, PriceQuery(limit=MAX_LISTED, model=model))


async def _named(call: AdminCall, which: str) -> ModelPrice:
    """The price of a version, or a model's only price that has not ended. Raises NotFound, InvalidField."""
    from control.billing.prices import find_price

    if which.isdecimal():
        return await find_price(call, which)
    found = [each for each in (await _prices(call, which)).data if _state(each) != "ended"]
    if not found:
        raise NotFound(f"price {which!r}: no model of this name has a current or future price")
    if len(found) > 1:
        versions = ", ".join(f"{each.version} ({_state(each)})" for each in found)
        raise InvalidField(
            f"model {which!r}: it has several prices; name one by its version: {versions}", param="which"
        )
    return found[0]


def _spoken(price: ModelPrice) -> str:
    rates = {"input": price.input_micro, "cached input": price.cached_input_micro, "output": price.output_micro}
    amounts = ", ".join(f"{told(micro, price.currency)} for {kind}" for kind, micro in rates.items())
    offline = "" if price.offline_percent == 100 else f"; {price.offline_percent} % of it in the class offline"
    return f"{price.model}: {amounts}, a million tokens{offline}"


def _state(price: ModelPrice) -> str:
    now = datetime.now(UTC)
    if price.valid_from > now:
        return "coming"
    return "in force" if price.valid_until is None or price.valid_until > now else "ended"


def _moment(value: datetime) -> str:
    return f"{value.astimezone(UTC):%Y-%m-%d %H:%M:%S}"
