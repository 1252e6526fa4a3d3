"""`slipstream quantization`: what rounding a model's weights and activations to FP8 does to it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click
import msgspec

if TYPE_CHECKING:
    from engines.embedded.quantization.passages import Passage
    from engines.embedded.quantization.sensitivity import Distance, Report

folder_option = click.option(
    "--model", "folder", type=click.Path(path_type=Path), required=True, metavar="FOLDER", help="Hugging Face folder."
)
text_option = click.option(
    "--text",
    type=click.Path(path_type=Path),
    required=True,
    metavar="FILE",
    help="Plain text, or .jsonl with a `text` or `messages` per line.",
)
window_option = click.option("--window", default=512, show_default=True, help="Tokens per passage.")
tokens_option = click.option("--tokens", default=65_536, show_default=True, help="Tokens in all.")
output_option = click.option("--output", type=click.Path(path_type=Path), metavar="FILE", help="Where to write JSON.")


@click.group()
def quantization() -> None:
    """Calibrate FP8, and see which layers it hurts."""


@quantization.command()
@folder_option
@text_option
@window_option
@tokens_option
@output_option
def calibrate(folder: Path, text: Path, window: int, tokens: int, output: Path | None) -> None:
    """Find the largest input of every layer, for activation scales that are fixed beforehand."""
    from engines.embedded.quantization.calibration import calibrate as run

    found = run(folder, _passages(folder, text, window, tokens))
    for name, amax in found.amax.items():
        click.echo(f"{name:<24} {amax:10.3f}")
    _write(output, found)


@quantization.command()
@folder_option
@text_option
@window_option
@tokens_option
@output_option
@click.option("--weights", type=click.Choice(["tensor", "channel"]), default="channel", show_default=True)
@click.option("--activations", type=click.Choice(["none", "token", "tensor"]), default="token", show_default=True)
@click.option("--calibration", default="", metavar="FILE", help="For --activations tensor.")
@click.option("--threshold", default=0.02, show_default=True, help="KL per token that is acceptable for the whole.")
@click.option("--dtype", type=click.Choice(["float32", "bfloat16"]), default="float32", show_default=True)
def sensitivity(
    folder: Path,
    text: Path,
    window: int,
    tokens: int,
    output: Path | None,
    weights: str,
    activations: str,
    calibration: str,
    threshold: float,
    dtype: str,
) -> None:
    """Round each layer alone and measure KL per token on held-out text; name the layers to keep."""
    from engines.embedded.config import Fp8Config
    from engines.embedded.quantization.sensitivity import measure

    fields = {"weights": weights, "activations": activations, "calibration": calibration}
    config = msgspec.convert(fields, Fp8Config)
    report = measure(folder, _passages(folder, text, window, tokens), config, threshold, dtype)
    _show(report)
    _write(output, report)


def _passages(folder: Path, text: Path, window: int, tokens: int) -> list[Passage]:
    from engines.embedded.quantization.passages import read_passages
    from engines.tokenizer.tokenizer import Tokenizer

    return read_passages(text, Tokenizer.load(folder), window, tokens)


def _show(report: Report) -> None:
    click.echo(f"{report.model}, {report.tokens} tokens; one layer rounded at a time, worst first")
    click.echo(f"{'layer':<24} {'KL/token':>10} {'same top':>9} {'weight SNR':>11}")
    for layer in report.layers:
        click.echo(f"{_row(layer.name, layer.distance)} {layer.signal_to_noise_db:8.1f} dB")
    every, kept = report.all_rounded, report.kept
    click.echo(_row("all rounded", every))
    if report.keep:
        click.echo(_row("all but those to keep", kept))
        click.echo(f"To stay within {report.threshold} keep: {', '.join(report.keep)}")
    else:
        click.echo(f"Within {report.threshold}: every layer may be rounded.")


def _row(name: str, distance: Distance) -> str:
    return f"{name:<24} {distance.kl_per_token:10.6f} {distance.same_top:9.4f}"


def _write(output: Path | None, value: msgspec.Struct) -> None:
    if output is not None:
        output.write_bytes(msgspec.json.format(msgspec.json.encode(value), indent=2) + b"\n")
