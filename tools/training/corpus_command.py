"""`python -m tools.training corpus`: gathers Python files for a code model, with licences and hashes."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import click

from tools.training import manifest
from tools.training.code_files import collect, save

PACKAGES = tuple(
    """click Jinja2 networkx rich packaging urllib3 fsspec pydantic aiohttp requests httpx starlette fastapi uvicorn
    websockets anyio jsonschema attrs markdown-it-py prompt_toolkit ipython traitlets jedi parso dnspython lark mpmath
    sentry-sdk filelock typer httpcore h11 msgspec yarl multidict prometheus_client loguru tomlkit pexpect dill
    cloudpickle psutil PyYAML pycparser cffi numpy mcp huggingface_hub protobuf Pygments datasets pandas scipy sympy
    transformers torch openai""".split()  # noqa: SIM905
)
FOLDER = click.Path(path_type=Path, exists=True, file_okay=False)


@click.command()
@click.option("--stdlib", type=FOLDER, required=True, help="…/lib/python3.11")
@click.option("--newer", type=FOLDER, multiple=True, help="…/lib/python3.13: what is new in it is held out.")
@click.option("--site-packages", type=FOLDER, multiple=True, help="Where packages are installed; several may be given.")
@click.option("--package", "packages", multiple=True, default=PACKAGES, help="Permissively licensed; several.")
@click.option("--package-bytes", default=1_000_000, show_default=True, help="At most so much of one package.")
@click.option("--seed", default=1, show_default=True)
@click.option(
    "--check", type=click.Path(path_type=Path, exists=True), help="Manifest that the corpus must be equal to."
)
@click.option("--manifest", "listed", type=click.Path(path_type=Path), help="Manifest to write: *.tsv.gz.")
@click.option("--out", type=click.Path(path_type=Path), required=True)
def command(
    stdlib: Path,
    newer: tuple[Path, ...],
    site_packages: tuple[Path, ...],
    packages: tuple[str, ...],
    package_bytes: int,
    seed: int,
    check: Path | None,
    listed: Path | None,
    out: Path,
) -> None:
    """Gather code and split it by groups of near-copies."""
    corpus = collect(stdlib, list(newer), list(site_packages), list(packages), package_bytes, seed)
    if check is not None:
        manifest.require_same(corpus.files, check)
    if listed is not None:
        manifest.write(corpus.files, listed)
    save(corpus, out)
    files, sizes = Counter(file.part for file in corpus.files), Counter[str]()
    for file in corpus.files:
        sizes[file.part] += file.bytes
    for part, count in sorted(files.items()):
        click.echo(f"{part}: {count} files, {sizes[part] / 1e6:.2f} MB")
