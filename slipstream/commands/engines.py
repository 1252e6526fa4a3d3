"""`slipstream tools engines`: the commands that start a pool's engines without `up`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click
import msgspec

from slipstream.commands.options import Deployment, deployment_options

if TYPE_CHECKING:
    from tools.launch.spec import LaunchSpec

FORMATS = ("text", "json", "shell")


@click.group()
def engines() -> None:
    """Write launch commands for SGLang, TensorRT-LLM, vLLM or the embedded engine."""


@engines.command()
@deployment_options
@click.argument("pool")
@click.option("--replica", default="", metavar="ID", help="One replica of the pool. Default: all replicas.")
@click.option(
    "--speculation",
    type=click.Choice(["on", "off", "both"]),
    help="Render the launch with drafts, without drafts, or both. Default: the `speculation` of each replica.",
)
@click.option(
    "--format",
    "form",
    type=click.Choice(FORMATS),
    default=FORMATS[0],
    show_default=True,
    help="Format of the output. text: each value with its reason; json: everything, for programs; shell: a script "
    "that starts the engine.",
)
@click.option(
    "--output",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="DIR",
    help="Folder for a script per replica and the files that it needs.",
)
def render(
    deployment: Deployment, pool: str, replica: str, speculation: str | None, form: str, output: Path | None
) -> None:
    """Print the exact command, files and environment of each replica of POOL, from its [pools.launch].

    `up` starts the engines of a pool without replicas, by this command and at a port that it chooses.

    The pool comes from the settings file: slipstream.toml here, or the one that --config names. Each number comes with
    its arithmetic. An impossible launch is refused with the reason. The command starts nothing, contacts no engine and
    reads no key: the printed commands name the files or variables with the engines' keys.

    \b
    Examples:
      slipstream tools engines render autocomplete
      slipstream tools engines render chat --config docs/guides/launch-engines.toml
      slipstream tools engines render chat --replica chat-0 --speculation both
      slipstream tools engines render chat --format shell --output launch/
    """
    from slipstream.commands.options import load_settings
    from slipstream.launch_plan import with_saved_ports
    from slipstream.launch_rendering import launches
    from slipstream.settings import settings_file

    settings = load_settings(deployment.config_file, local__data=deployment.data)
    source = settings_file(deployment.config_file)
    settings = with_saved_ports(settings)
    specs = launches(settings, pool, replica, speculation or "", "" if source is None else str(source.absolute()))
    if output is not None:
        _write(output, specs)
    elif form == "json":
        click.echo(msgspec.json.encode({"launches": [_told(spec) for spec in specs]}).decode())
    else:
        click.echo("\n".join(_text(spec, form) for spec in specs), nl=False)


def _text(spec: LaunchSpec, form: str) -> str:
    from tools.launch.text import script_of, text_of

    return script_of(spec) if form == "shell" else text_of(spec)


def _told(spec: LaunchSpec) -> dict[str, object]:
    return {**msgspec.to_builtins(spec), "folders": spec.folders, "command": spec.command}


def _write(folder: Path, specs: list[LaunchSpec]) -> None:
    """Write an executable script for each launch, and its files under their own names."""
    from tools.launch.text import script_of

    folder.mkdir(parents=True, exist_ok=True)
    for spec in specs:
        variant = f"speculation-{'on' if spec.speculation else 'off'}"
        script = folder / f"{spec.replica}.{variant}.sh"
        script.write_text(script_of(spec))
        script.chmod(0o755)
        click.echo(script)
        for file in spec.files:
            path = folder / Path(file.path).name
            path.write_text(file.content)
            click.echo(path)
