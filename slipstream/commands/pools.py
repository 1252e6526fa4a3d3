"""`slipstream fleet pools` and `slipstream fleet replicas`: the engines of the models, without a restart."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click
import msgspec

from contracts.errors import InvalidField, NotFound
from slipstream.commands.models import FILE
from slipstream.commands.options import running_settings
from slipstream.fleet_edit import How, edit, edit_options, fields_of
from slipstream.hints import command
from slipstream.operated import AdminOperation, PathValue, operated
from slipstream.table import table

if TYPE_CHECKING:
    from pathlib import Path

    from contracts.desired_state import Pool
    from control.api.call import AdminCall
    from control.fleet.fleet_edit import EditQuery, FleetEdit
    from control.fleet.pools import FleetPools

HEAD = ("pool", "driver", "replica", "weight", "url", "hardware")


@click.group()
def pools() -> None:
    """List and change pools of engines, without a restart. `slipstream fleet` shows their state.

    \b
    Examples:
      slipstream fleet pools set green --driver sglang --replica green-0=http://10.0.0.7:30000
      slipstream fleet replicas add green green-1 http://10.0.0.8:30000
      slipstream fleet replicas drain green-0
      slipstream fleet pools remove blue
    """


@operated(pools, AdminOperation("fleet.pools.list_pools"), "list")
def list_command(found: FleetPools) -> str:
    """List the pools of the version in force, with their replicas."""
    print(f"fleet version {found.version}", file=sys.stderr)
    return "\n".join(table(HEAD, [row for pool in found.data for row in _rows(pool)]))


@operated(pools, AdminOperation("fleet.pools.get_pool", PathValue(None, ("name",))))
@click.argument("name")
def show(found: Pool) -> str:
    """Print the pool NAME as JSON, in the format of `set --file`. Absent fields have their defaults."""
    return msgspec.json.format(msgspec.json.encode(found).decode())


@pools.command(name="set")
@click.option(
    "--file",
    type=FILE,
    help="File with the pool's fields, as in [[pools]] of the settings: TOML, or JSON if the name ends in .json.",
)
@click.option(
    "--driver", help="Driver: embedded, sglang, tensorrt_llm, vllm, llama_cpp, or openai for any other engine."
)
@click.option(
    "--replica", "replicas", multiple=True, metavar="ID=URL", help="An engine of the pool. Repeat for each engine."
)
@click.option("--max-concurrency", type=int, help="Maximum number of concurrent requests at each replica.")
@click.option(
    "--api-key-file", help="File with the engines' own API key, on the machines of gateways, router and worker."
)
@click.option("--api-key-env", help="Environment variable of gateways, router and worker that holds the API key.")
@click.option("--price-per-replica-hour", type=float, help="Hourly cost of a replica, in the deployment's currency.")
@click.option("--hardware", help="Hardware of the replicas, as reports show it.")
@click.option("--tensor-parallel", type=int, help="Number of GPUs per replica, for reports.")
@click.argument("name")
@edit_options
def set_command(how: How, name: str, file: Path | None, replicas: tuple[str, ...], **options: Any) -> None:
    """Add the pool NAME, or change the given fields. Use `slipstream fleet replicas` for single replicas."""
    from contracts.desired_state import Pool
    from control.fleet.pools import get_pool, put_pool
    from slipstream.administration import converted

    engines = [_engine(each) for each in replicas]

    async def work(call: AdminCall, query: EditQuery) -> FleetEdit:
        fields: dict[str, Any] = {"name": name}
        if file is None:
            try:
                fields = msgspec.to_builtins(await get_pool(call, name))
            except NotFound:
                if options["driver"] is None:
                    raise InvalidField(
                        f"There is no pool {name!r} yet: to add it, give --driver, or --file.", param="driver"
                    ) from None
            call.if_match = call.if_match or f'"{call.fleet_version}"'  # change only the version that was read
        body = converted({**fields, **fields_of(file, {**options, "replicas": tuple(engines)})}, Pool)
        return await put_pool(call, name, body, query)

    edit(how, work)


@pools.command(name="remove")
@click.argument("name")
@edit_options
def remove_pool(how: How, name: str) -> None:
    """Remove the pool NAME, if no model uses it. Its engines keep running; stop them where they were
    started."""
    from control.fleet.pools import delete_pool

    edit(how, lambda call, query: delete_pool(call, name, query))


@click.group()
def replicas() -> None:
    """Add, weigh, drain and remove single engines of a pool, without a restart.

    These changes are permanent; `slipstream fleet drain` lasts until the router restarts.
    """


@replicas.command()
@click.option("--weight", type=float, help="Share of the pool's load. Default: 1.")
@click.option("--hardware", help="Hardware of the replica, as reports show it.")
@click.option(
    "--context-tokens", type=int, help="Maximum length of prompt and response together. Default: the model's limit."
)
@click.option("--kv-events", help="ZeroMQ endpoint of the replica's KV events.")
@click.option("--kv-events-replay", help="ZeroMQ endpoint that resends missed KV events.")
@click.argument("pool")
@click.argument("replica_id")
@click.argument("url")
@edit_options
def add(how: How, pool: str, replica_id: str, url: str, **options: Any) -> None:
    """Add the engine at URL to POOL as REPLICA_ID, or replace the replica with that id, and report whether it answers.
    With --probe, the command first compares the engine's models and context with the settings."""
    from contracts.desired_state import Replica
    from control.fleet.pools import put_replica
    from slipstream.administration import converted

    body = converted({"id": replica_id, "url": url, **fields_of(None, options)}, Replica)
    edit(how, lambda call, query: put_replica(call, pool, replica_id, body, query))
    if not how.dry_run and how.wait_s > 0 and not how.as_json:
        _tell_state(how, replica_id)


def _tell_state(how: How, replica_id: str) -> None:
    """Print whether the deployment's router can use the engine; nothing if no router runs."""
    from slipstream.replicas import known_replica, replicas_of

    settings = running_settings(*how.deployment)
    if replicas_of(settings) is None:
        return
    found = known_replica(settings, replica_id, how.wait_s)
    if found is None:
        click.echo(f"warning: the router has not heard from {replica_id} yet; `{command('fleet')}` shows it", err=True)
    elif found.usable:
        click.echo(f"{replica_id} answers and is usable", err=True)
    else:
        click.echo(f"warning: {replica_id} at {found.url} is not usable: {found.state}", err=True)


@replicas.command(name="remove")
@click.argument("replica_id")
@edit_options
def remove_replica(how: How, replica_id: str) -> None:
    """Remove REPLICA_ID. Its running requests finish."""
    from control.fleet.pools import delete_replica

    async def work(call: AdminCall, query: EditQuery) -> FleetEdit:
        return await delete_replica(call, await _pool_of(call, replica_id), replica_id, query)

    edit(how, work)


@replicas.command()
@click.argument("replica_id")
@click.argument("value", type=float)
@edit_options
def weight(how: How, replica_id: str, value: float) -> None:
    """Set the share of REPLICA_ID in its pool's load, relative to the others; 0 drains it."""
    _weigh(how, replica_id, value)


@replicas.command()
@click.argument("replica_id")
@edit_options
def drain(how: How, replica_id: str) -> None:
    """Send REPLICA_ID no new requests until it gets a weight again; running ones finish."""
    _weigh(how, replica_id, 0.0)


def _weigh(how: How, replica_id: str, value: float) -> None:
    from control.fleet.pools import ReplicaWeight, weigh_replica
    from slipstream.administration import converted

    body = converted({"weight": value}, ReplicaWeight)

    async def work(call: AdminCall, query: EditQuery) -> FleetEdit:
        return await weigh_replica(call, await _pool_of(call, replica_id), replica_id, body, query)

    edit(how, work)


async def _pool_of(call: AdminCall, replica_id: str) -> str:
    """The name of a replica's pool. Raises NotFound."""
    from control.fleet.fleet_edit import in_force

    state = (await in_force(call)).state
    for pool in state.pools:
        if any(each.id == replica_id for each in pool.replicas):
            return pool.name
    known = ", ".join(each.id for pool in state.pools for each in pool.replicas) or "none"
    raise NotFound(f"There is no replica {replica_id!r}; replicas: {known}.")


def _engine(text: str) -> dict[str, str]:
    name, equals, url = text.partition("=")
    if not equals:
        raise InvalidField(f"--replica {text}: write ID=URL, such as green-0=http://10.0.0.7:30000.", param="replica")
    return {"id": name, "url": url}


def _rows(pool: Pool) -> list[tuple[str, ...]]:
    if not pool.replicas:
        return [(pool.name, pool.driver, "-", "-", "-", pool.hardware_of() or "-")]
    return [
        (pool.name, pool.driver, each.id, f"{each.weight:g}", each.url, pool.hardware_of(each) or "-")
        for each in pool.replicas
    ]
