"""`slipstream customers limits`: the limits and the priority of an organization, a project or a key.

Gateways apply a change within a second.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from operator import itemgetter
from typing import TYPE_CHECKING, Any, TypeVar
from uuid import UUID

import click
import msgspec

from slipstream.commands.options import Deployment, deployment_options, running_settings
from slipstream.commands.projects import none_in
from slipstream.listing import json_option, show
from slipstream.moment import MOMENT, moment
from slipstream.money import Money, told
from slipstream.table import table

if TYPE_CHECKING:
    from control.api.call import AdminCall
    from control.tenants.limits import LimitRule, LimitRules
    from control.tenants.limits_preview import CapPreview
    from control.tenants.priorities import Priority
    from gateway.limits.levels import Level, Limits
    from gateway.limits.priorities import Priorities, PriorityRule

Function = TypeVar("Function", bound=Callable[..., Any])
MONEY = "money_micro_per_month"
UNITS = {
    "requests_per_minute": "requests/min",
    "input_tokens_per_minute": "input tokens/min",
    "output_tokens_per_minute": "output tokens/min",
    "tokens_per_minute": "tokens/min",
    "max_concurrency": "at once",
    "tokens_per_day": "tokens/day",
    MONEY: "a month",
    "max_prompt_tokens": "tokens a prompt",
}
"""Each limit's unit in the output."""
PRIORITY = {"service_class": "class", "share": "share"}
"""A subject's other settings, with their names in the output."""
NONE = "none"
LEVELS = ("organization", "project", "key")


class Amount(click.ParamType[object]):
    """A number of at least 0, or the word `none`, which stays a word."""

    name = "N|none"

    def __init__(self, kind: click.ParamType[int]) -> None:
        self._kind = kind

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> object:
        return NONE if value == NONE else self._kind.convert(value, param, ctx)


def subject_options(function: Function) -> Function:
    """Add `--organization`, `--project` and `--key`, which choose the subject of the limits."""
    for option in (
        click.option("--key", help="Key whose limits are meant: its id, its sk-slip-… from `keys list`, or its name."),
        click.option("--project", help="Project whose limits are meant: id or name."),
        click.option("--organization", default="demo", show_default=True, help="Organization: id or name."),
    ):
        function = option(function)
    return function


def tier_option(function: Function) -> Function:
    """Add `--tier`."""
    tiers = click.Choice(["all", "chat", "autocomplete"])
    help_text = "Tier that the limit covers; `all` covers all tiers together."
    return click.option("--tier", type=tiers, default="all", show_default=True, help=help_text)(function)


@click.group()
def limits() -> None:
    """Set and show limits, class and share of organizations, projects and keys.

    Limits bound usage. Class and share decide which requests go first when a pool is full
    (docs/concepts/priorities.md).

    \b
    Examples:
      slipstream customers limits set --organization acme --requests-per-minute 600 --money-per-month 25
      slipstream customers limits set --organization acme --project web --tier chat --tokens-per-day 1000000
      slipstream customers limits set --key ci --max-concurrency 4
      slipstream customers limits set --organization acme --class interactive --share 300
      slipstream customers limits set --organization acme --project nightly --class offline
      slipstream customers limits preview --organization acme --max-prompt-tokens 32000
      slipstream customers limits list --organization acme
      slipstream customers limits remove --key ci
    """


@limits.command(name="list")
@deployment_options
@subject_options
@json_option
def list_command(
    deployment: Deployment, organization: str, project: str | None, key: str | None, as_json: bool
) -> None:
    """List the limits of an organization and of everything in it, or of one project or key. For a key, also show the
    effective class and shares of its requests."""
    from control.tenants import limit_store, priority_store
    from slipstream.database import connected
    from slipstream.tenants import organization_named

    settings = running_settings(*deployment)

    async def run() -> tuple[list[tuple[str, Any]], list[tuple[str, Any]], Priorities | None]:
        async with connected(settings) as connection:
            within: tuple[UUID | None, UUID | None]
            if project is None and key is None:
                within = await organization_named(connection, organization), None
            else:
                within = None, (await _subject(connection, organization, project, key))[1]
            limited = await limit_store.rules_within(connection, *within)
            prioritized = await priority_store.rules_within(connection, *within)
            if key is None or within[1] is None:
                return limited, prioritized, None
            return limited, prioritized, await priority_store.priorities_of_key(connection, within[1])

    limited, prioritized, priorities = asyncio.run(run())
    cells: dict[tuple[int, str, str, str], list[str]] = {}
    for name, rule in limited:
        cells.setdefault(_place(name, rule), []).append(spoken(rule.limits, settings.currency))
    for name, rule in prioritized:
        cells.setdefault(_place(name, rule), []).append(spoken_priority(rule))
    found = [
        {"level": LEVELS[level], "of": name, "tier": tier or "all", "limits": ", ".join(parts)}
        for (level, name, _, tier), parts in sorted(cells.items())
    ]
    whole = project is None and key is None
    empty = none_in(organization) if whole else f"none for {_whose(organization, project, key)}"
    show(found, {name: itemgetter(name) for name in ("level", "of", "tier", "limits")}, as_json=as_json, empty=empty)
    if priorities is not None and not as_json:
        print("\n".join(in_force(priorities)))


@limits.command(name="set")
@deployment_options
@subject_options
@tier_option
@click.option("--requests-per-minute", type=Amount(click.IntRange(min=1)))
@click.option("--input-tokens-per-minute", type=Amount(click.IntRange(min=1)), help="Prompt tokens.")
@click.option("--output-tokens-per-minute", type=Amount(click.IntRange(min=1)))
@click.option("--tokens-per-minute", type=Amount(click.IntRange(min=1)), help="Prompt and output together.")
@click.option("--max-concurrency", type=Amount(click.IntRange(min=1)), help="Concurrent requests.")
@click.option("--tokens-per-day", type=Amount(click.IntRange(min=1)), help="Prompt and output together, per UTC day.")
@click.option(
    "--money-per-month",
    MONEY,
    type=Amount(Money()),
    help="Budget per UTC month in units of the currency, such as 25 or 0.50.",
)
@click.option(
    "--max-prompt-tokens",
    type=Amount(click.IntRange(min=1)),
    help="Longest prompt. Try a value with `limits preview` first.",
)
@click.option(
    "--class",
    "service_class",
    type=click.Choice(["interactive", "standard", "offline", NONE]),
    help="Priority class when a pool is full; standard if not set.",
)
@click.option(
    "--share",
    type=Amount(click.IntRange(1, 10_000)),
    help="Weight relative to other organizations, projects or keys; 100 if not set.",
)
def set_command(
    deployment: Deployment, organization: str, project: str | None, key: str | None, tier: str, **options: object
) -> None:
    """Set limits, class or share of an organization, a project or a key. Omitted values do not change; `none` removes a
    limit.

    The class of an organization is an upper bound for its projects and keys; the lowest class of the three levels
    applies. Requests of the class `offline` get the capacity that other classes leave, and are refused first.
    """
    changes = {name: None if value == NONE else value for name, value in options.items() if value is not None}
    if not changes:
        raise click.UsageError("no limit is given; `slipstream customers limits set --help` names them")
    from control.tenants.limits import NewLimits, changed_organization, get_limits, put_limits
    from control.tenants.priorities import NewPriority, get_priorities, put_priorities
    from slipstream.administration import administer, converted

    def body_of(rules: list[Any], names: dict[str, str], kind: type[Any]) -> Any:
        """The tier's rule with the changes of its fields."""
        present = {name: getattr(rules[0], name) if rules else None for name in names}
        return converted({**present, **{name: value for name, value in changes.items() if name in names}}, kind)

    async def work(call: AdminCall) -> tuple[LimitRule | None, Priority | None]:
        level, subject_id = await _subject(call.connection, organization, project, key)
        await changed_organization(call, level, subject_id)  # before it is read: another may be changing the rule
        limit = priority = None
        if changes.keys() & UNITS.keys():
            limits = [one.limits for one in (await get_limits(call, level, subject_id)).data if _is_of(one, tier)]
            limit = await put_limits(call, level, subject_id, tier, body_of(limits, UNITS, NewLimits))
        if changes.keys() & PRIORITY.keys():
            rules = [one for one in (await get_priorities(call, level, subject_id)).data if _is_of(one, tier)]
            priority = await put_priorities(call, level, subject_id, tier, body_of(rules, PRIORITY, NewPriority))
        return limit, priority

    limit, priority = administer(deployment, work)
    parts = [] if limit is None else [spoken(limit.limits, running_settings(*deployment).currency)]
    if priority is not None:
        parts.append(spoken_priority(priority))
    print(f"{_whose(organization, project, key)}, {_tier(tier)}: {', '.join(parts)}")


@limits.command()
@deployment_options
@subject_options
@tier_option
@click.option(
    "--max-prompt-tokens",
    type=click.IntRange(min=1),
    help="The limit to try. Without it, no request counts as refused.",
)
@click.option(
    "--since", "start", type=moment, metavar="MOMENT", help=f"Start of the period: {MOMENT}. Default: 7 days ago."
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def preview(
    deployment: Deployment, organization: str, project: str | None, key: str | None, tier: str, as_json: bool,
    **options: object,
) -> None:  # fmt: skip
    """Show, by key, which past requests a limit on prompts would have refused. The command changes nothing."""
    from control.tenants.limits_preview import CapQuery, get_preview
    from slipstream.administration import administer, converted
    from slipstream.tenants import key_named, organization_named, project_named

    async def work(call: AdminCall) -> CapPreview:
        connection = call.connection
        within = {
            "project_id": None if project is None else await project_named(connection, organization, project),
            "key_id": None if key is None else await key_named(connection, key),
            "tier": None if tier == "all" else tier,
        }
        query = converted({**options, **within}, CapQuery)
        return await get_preview(call, await organization_named(connection, organization), query)

    found = administer(deployment, work)
    if as_json:
        print(msgspec.json.encode(found).decode())
        return
    since = f"since {found.start:%Y-%m-%d %H:%M} UTC"
    if found.max_prompt_tokens is None:
        print(f"{found.requests:,} requests {since}; the longest prompt has {found.longest_prompt_tokens:,} tokens")
    else:
        share = f" ({found.refused / found.requests:.1%})" if found.requests else ""
        print(
            f"a bound of {found.max_prompt_tokens:,} tokens a prompt would have refused {found.refused:,} of "
            f"{found.requests:,} requests{share} {since}, of {found.keys_refused:,} keys"
        )
    rows = [
        (
            each.project_name or str(each.project_id),
            each.key_name or str(each.key_id),
            *(f"{count:,}" for count in (each.requests, each.refused, each.p99_prompt_tokens)),
            f"{each.longest_prompt_tokens:,}",
        )
        for each in found.data
    ]
    if rows:
        print("\n".join(table(("project", "key", "requests", "refused", "p99 tokens", "longest"), rows)))
    if found.has_more:
        print("… and keys with fewer refusals")


@limits.command()
@deployment_options
@subject_options
@tier_option
def remove(deployment: Deployment, organization: str, project: str | None, key: str | None, tier: str) -> None:
    """Remove all limits, the class and the share of an organization, a project or a key, for one tier or for all."""
    from control.tenants.limits import delete_limits
    from control.tenants.priorities import delete_priorities
    from slipstream.administration import administer

    async def work(call: AdminCall) -> LimitRules:
        level, subject_id = await _subject(call.connection, organization, project, key)
        await delete_priorities(call, level, subject_id, tier)
        return await delete_limits(call, level, subject_id, tier)

    rest = administer(deployment, work).data
    others = ", ".join(_tier(rule.tier or "all") for rule in rest)
    print(f"{_whose(organization, project, key)}, {_tier(tier)}: none" + (f"; still limited: {others}" if rest else ""))


def spoken(limits: Limits, currency: str) -> str:
    """Limits as text such as `600 requests/min, 25.00 EUR a month`."""
    parts = []
    for name, unit in UNITS.items():
        value = getattr(limits, name)
        if value is not None:
            parts.append(f"{told(value, currency) if name == MONEY else f'{value:,}'} {unit}")
    return ", ".join(parts) or "none"


def spoken_priority(rule: Priority | PriorityRule) -> str:
    """A priority as text such as `class offline, share 50`."""
    parts = [f"{word} {value}" for name, word in PRIORITY.items() if (value := getattr(rule, name)) is not None]
    return ", ".join(parts) or "no class or share of its own"


def in_force(priorities: Priorities) -> Iterator[str]:
    """A line for each tier: the class and shares of a key's requests by the rules of all levels."""
    from contracts.generation import Tier

    for tier in Tier:
        found = priorities.for_tier(tier)
        yield (
            f"in force in the tier {tier.value}: class {found.service_class.value}; share {found.share} of the "
            f"organization, {found.project_share} of the project in it"
        )


def _is_of(rule: LimitRule | Priority, tier: str) -> bool:
    return (rule.tier or "all") == tier


def _place(name: str, rule: Any) -> tuple[int, str, str, str]:
    """The sort key of a rule in the list: its level, its name, and all tiers first."""
    return LEVELS.index(rule.level.value), name, rule.subject_id, rule.tier.value if rule.tier else ""


async def _subject(connection: Any, organization: str, project: str | None, key: str | None) -> tuple[Level, UUID]:
    """The narrowest level that is named, and its id."""
    from gateway.limits.levels import Level
    from slipstream.tenants import key_named, organization_named, project_named

    if key is not None:
        return Level.KEY, await key_named(connection, key)
    if project is not None:
        return Level.PROJECT, await project_named(connection, organization, project)
    return Level.ORGANIZATION, await organization_named(connection, organization)


def _whose(organization: str, project: str | None, key: str | None) -> str:
    if key is not None:
        return f"key {key}"
    return f"organization {organization}" if project is None else f"project {project} of {organization}"


def _tier(name: str) -> str:
    return "all tiers" if name == "all" else f"tier {name}"
