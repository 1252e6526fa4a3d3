"""`slipstream tools lsp`: the language server that an editor starts."""

from __future__ import annotations

import importlib.util
import os
import sys
from pathlib import Path

import click

from contracts.errors import ConfigError


@click.command()
@click.option("--url", metavar="URL", help="URL of the gateway, without /v1.  [default: http://127.0.0.1:8000]")
@click.option(
    "--model", metavar="NAME", help="A model or an alias. Default: the first autocomplete model that the key may use."
)
@click.option(
    "--api-key-file",
    "key_file",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="File with the API key. Default: SLIPSTREAM_API_KEY.",
)
@click.option("--stdio", is_flag=True, help="Use stdin and stdout. This is the default; some editors pass the option.")
def lsp(url: str | None, model: str | None, key_file: Path | None, stdio: bool) -> None:
    """Complete code in an editor that speaks LSP 3.18, over stdin and stdout.

    The editor starts this command. The editor's initializationOptions take precedence over these options.
    docs/guides/editors.md has the configuration of each editor.
    """
    if importlib.util.find_spec("pygls") is None:
        install = f"{sys.executable} -m pip install -e '.[lsp]'"
        raise ConfigError(f"the language server needs pygls: in Slipstream's folder, {install}")
    from tools.lsp.server import serve_stdio

    options = {name: value for name, value in (("url", url), ("model", model)) if value is not None}
    serve_stdio(options, key_file, os.environ)
