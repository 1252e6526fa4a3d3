"""`slipstream customers projects`: projects, the models and tiers that their keys may use, and whether keys work."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click
from click.core import ParameterSource

from slipstream.listing import names, state_of
from slipstream.operated import MAX_LISTED, ORGANIZATION, AdminOperation, PathValue, listed, operated

if TYPE_CHECKING:
    from control.tenants.projects import Project

organization_option = click.option(
    "--organization", default="demo", show_default=True, help="Organization: id or name."
)


def none_in(organization: str) -> str:
    """The message for an empty list; it mentions `--organization` if the command did not use it."""
    named = click.get_current_context().get_parameter_source("organization") is not ParameterSource.DEFAULT
    return f"none in {organization}" + ("" if named else "; --organization NAME chooses another")


@click.group()
def projects() -> None:
    """Create, list and change projects."""


@listed(
    projects,
    AdminOperation("tenants.projects.list_projects", ORGANIZATION, limit=MAX_LISTED),
    {
        "id": "id",
        "state": state_of,
        "name": "name",
        "tiers": lambda each: names(each.tiers),
        "models": lambda each: names(each.models),
    },
    none_in,
)
@organization_option
def list_command() -> None:
    """List an organization's projects, newest first."""


@operated(projects, AdminOperation("tenants.projects.create_project", ORGANIZATION))
@organization_option
@click.option(
    "--model",
    "models",
    multiple=True,
    help="A model that the project's keys may use. Repeat for several. Default: all models.",
)
@click.option(
    "--tier",
    "tiers",
    multiple=True,
    help="A tier that the project's keys may use. Repeat for several. Default: both tiers.",
)
@click.argument("name")
def create(made: Project) -> object:
    """Create a project and print its id."""
    return made.id


@operated(
    projects, AdminOperation("tenants.projects.update_project", PathValue("project_named", ("organization", "which")))
)
@organization_option
@click.option(
    "--model",
    "models",
    multiple=True,
    help="A model that the project's keys may use; `all` allows every model. Repeat for several.",
)
@click.option(
    "--tier",
    "tiers",
    multiple=True,
    help="A tier that the project's keys may use; `all` allows both. Repeat for several.",
)
@click.option("--disable/--enable", "disabled", default=None, help="Refuse the project's keys, or accept them again.")
@click.option(
    "--allow-reviews/--no-reviews",
    "allow_reviews",
    default=None,
    help="Allow reviewers to read prompts and responses of the project's keys. --no-reviews deletes the stored ones.",
)
@click.argument("which")
def update(after: Project) -> str:
    """Change the project WHICH (id or name). All gateways follow within a second."""
    return f"{after.name}: {'disabled' if after.disabled_at else 'active'}{', reviewed' if after.allow_reviews else ''}"
