"""`slipstream customers projects`: what the keys of a project may use, and whether they work."""

from __future__ import annotations

from collections.abc import Callable

import click
from click.core import ParameterSource

from slipstream.commands.options import Deployment, deployment_options
from slipstream.listing import json_option, names, show, state_of

organization_option = click.option("--organization", default="demo", show_default=True, help="Id or name.")


def none_in(organization: str) -> str:
    """Message for an empty list; it explains how to name another organization if the command named none."""
    named = click.get_current_context().get_parameter_source("organization") is not ParameterSource.DEFAULT
    return f"none in {organization}" + ("" if named else "; --organization NAME chooses another")


@click.group()
def projects() -> None:
    """Make, list and change projects."""


@projects.command(name="list")
@deployment_options
@organization_option
@json_option
def list_command(deployment: Deployment, organization: str, as_json: bool) -> None:
    """List an organization's projects, newest first."""
    from control.api.call import AdminCall
    from control.api.schemas import Page
    from control.tenants.projects import Project, ProjectQuery, list_projects
    from slipstream.administration import administer
    from slipstream.tenants import organization_named

    async def work(call: AdminCall) -> Page[Project]:
        found = await organization_named(call.connection, organization)
        return await list_projects(call, found, ProjectQuery(limit=100))

    page = administer(deployment, work)
    columns: dict[str, Callable[[Project], object]] = {
        "id": lambda each: each.id,
        "state": state_of,
        "name": lambda each: each.name,
        "tiers": lambda each: names(each.tiers),
        "models": lambda each: names(each.models),
    }
    more = "/organizations/{organization_id}/projects" if page.has_more else ""
    show(page.data, columns, as_json=as_json, empty=none_in(organization), more=more)


@projects.command()
@deployment_options
@organization_option
@click.option("--model", "models", multiple=True, help="A model its keys may use; repeat. Default: all.")
@click.option("--tier", "tiers", multiple=True, help="A tier its keys may use; repeat. Default: both.")
@click.argument("name")
def create(
    deployment: Deployment, organization: str, models: tuple[str, ...], tiers: tuple[str, ...], name: str
) -> None:
    """Make a project and print its id."""
    from control.api.call import AdminCall
    from control.tenants.projects import NewProject, Project, create_project
    from slipstream.administration import administer, converted
    from slipstream.tenants import organization_named

    body = converted({"name": name, "models": list(models) or None, "tiers": list(tiers) or None}, NewProject)

    async def work(call: AdminCall) -> Project:
        found = await organization_named(call.connection, organization)
        return await create_project(call, found, body)

    print(administer(deployment, work).id)


@projects.command()
@deployment_options
@organization_option
@click.option("--model", "models", multiple=True, help="A model its keys may use; repeat. `all`: every model.")
@click.option("--tier", "tiers", multiple=True, help="A tier its keys may use; repeat. `all`: both.")
@click.option("--disable/--enable", "disabled", default=None, help="Refuse its keys, or let them in again.")
@click.option(
    "--allow-reviews/--no-reviews",
    "allow_reviews",
    default=None,
    help="Whether reviewers may read what its keys ask and are answered. Off deletes it.",
)
@click.argument("which")
def update(
    deployment: Deployment,
    organization: str,
    models: tuple[str, ...],
    tiers: tuple[str, ...],
    disabled: bool | None,
    allow_reviews: bool | None,
    which: str,
) -> None:
    """Change the project WHICH (id or name); gateways follow within a second."""
    from control.api.call import AdminCall
    from control.tenants.projects import Project, ProjectChanges, update_project
    from slipstream.administration import administer, converted
    from slipstream.tenants import project_named

    changes: dict[str, object] = {}
    for field, values in (("models", models), ("tiers", tiers)):
        if values:
            changes[field] = None if values == ("all",) else list(values)
    if disabled is not None:
        changes["disabled"] = disabled
    if allow_reviews is not None:
        changes["allow_reviews"] = allow_reviews
    body = converted(changes, ProjectChanges)

    async def work(call: AdminCall) -> Project:
        found = await project_named(call.connection, organization, which)
        return await update_project(call, found, body)

    after = administer(deployment, work)
    print(f"{after.name}: {'disabled' if after.disabled_at else 'active'}{', reviewed' if after.allow_reviews else ''}")
