"""`slipstream fleet models`: lists and changes the models, their pools and their names, without a restart."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec

from contracts.errors import InvalidField, NotFound
from slipstream.fleet_edit import How, edit, edit_options, fields_of
from slipstream.operated import AdminOperation, PathValue, operated
from slipstream.table import table

if TYPE_CHECKING:
    from contracts.desired_state import Model
    from control.api.call import AdminCall
    from control.fleet.fleet_edit import EditQuery, FleetEdit
    from control.fleet.models import FleetModels

FILE = click.Path(path_type=Path, exists=True, dir_okay=False)
HEAD = ("model", "tier", "pool", "context", "aliases", "also on")


@click.group()
def models() -> None:
    """List and change the models that are served, without a restart.

    \b
    Examples:
      slipstream fleet models set large-2 --tier chat --pool green --context-tokens 32768
      slipstream fleet models alias large large-2
      slipstream fleet models set large-2 --pool blue --dry-run
      slipstream fleet models remove large-1
    """


@operated(models, AdminOperation("fleet.models.list_models"), "list")
def list_command(found: FleetModels) -> str:
    """List the models of the version in force."""
    print(f"fleet version {found.version}", file=sys.stderr)
    rows = [
        (each.name, each.tier, each.pool, f"{each.context_tokens:,}", ", ".join(each.aliases) or "-", _also_on(each))
        for each in found.data
    ]
    return "\n".join(table(HEAD, rows))


@operated(models, AdminOperation("fleet.models.get_model", PathValue(None, ("name",))))
@click.argument("name")
def show(found: Model) -> str:
    """Print the model NAME as JSON, in the format of `set --file`. Absent fields have their defaults."""
    return msgspec.json.format(msgspec.json.encode(found).decode())


@models.command(name="set")
@click.option(
    "--file",
    type=FILE,
    help="File with the model's fields, as in [[models]] of the settings: TOML, or JSON if the name ends in .json.",
)
@click.option("--tier", help="chat or autocomplete.")
@click.option("--pool", help="The pool that serves the model.")
@click.option("--context-tokens", type=int, help="Maximum length of prompt and response together.")
@click.option("--alias", "aliases", multiple=True, help="Another name for the model. Repeat for several.")
@click.option("--tokenizer", help="Folder with the model's tokenizer.json, on every gateway's machine.")
@click.option("--engine-model", help="Name of the model on its engines, if it differs.")
@click.option("--default-max-tokens", type=int, help="Output limit of requests that set none.")
@click.argument("name")
@edit_options
def set_command(how: How, name: str, file: Path | None, **options: Any) -> None:
    """Add the model NAME, or change the given fields."""
    from contracts.desired_state import Model
    from control.fleet.models import get_model, put_model
    from slipstream.administration import converted

    async def work(call: AdminCall, query: EditQuery) -> FleetEdit:
        fields: dict[str, Any] = {"name": name}
        if file is None:
            try:
                fields = msgspec.to_builtins(await get_model(call, name))
            except NotFound:
                _require_whole(name, options)
            call.if_match = call.if_match or f'"{call.fleet_version}"'  # change only the version that was read
        body = converted({**fields, **fields_of(file, options)}, Model)
        return await put_model(call, name, body, query)

    edit(how, work)


@models.command()
@click.argument("name")
@edit_options
def remove(how: How, name: str) -> None:
    """Stop serving the model NAME and its aliases."""
    from control.fleet.models import delete_model

    edit(how, lambda call, query: delete_model(call, name, query))


@models.command()
@click.option("--remove", "removing", is_flag=True, help="Remove the alias.")
@click.argument("name")
@click.argument("model", required=False)
@edit_options
def alias(how: How, name: str, model: str | None, removing: bool) -> None:
    """Point the alias NAME to MODEL. A change of an existing alias takes effect at once."""
    from control.fleet.models import AliasTarget, delete_alias, put_alias

    if removing == (model is not None):
        raise InvalidField("Give the model for the alias, or --remove.", param="model")
    if model is None:
        edit(how, lambda call, query: delete_alias(call, name, query))
    else:
        edit(how, lambda call, query: put_alias(call, name, AliasTarget(model=model), query))


@models.command()
@click.option(
    "--comparison", required=True, help="Id of the comparison that the cascade passed, from `slipstream evals list`."
)
@click.argument("name")
@edit_options
def cascade(how: How, name: str, comparison: str) -> None:
    """Allow the cascade of the model NAME to answer customers. It must have passed a comparison."""
    from control.cascades.cascades import CascadeApproval, approve_cascade
    from slipstream.administration import converted

    body = converted({"comparison": comparison}, CascadeApproval)
    edit(how, lambda call, query: approve_cascade(call, name, body, query))


def _require_whole(name: str, options: dict[str, Any]) -> None:
    missing = [f"--{each.replace('_', '-')}" for each in ("tier", "pool", "context_tokens") if options[each] is None]
    if missing:
        raise InvalidField(f"There is no model {name!r} yet: to add it, give {', '.join(missing)}, or --file.")


def _also_on(model: Model) -> str:
    split = model.canary
    return "-" if split is None else f"{split.pool} ({split.share:.0%}{', release' if split.release else ''})"
