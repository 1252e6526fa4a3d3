"""`slipstream tools quantization`: measures the effect of rounding on a model, and judges whether it may be served."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec

from slipstream.exit_codes import GATE_EXIT

if TYPE_CHECKING:
    from engines.embedded.quantization.passages import Passage
    from evals.gate import SliceRule
    from evals.slices.item import Slice
    from tools.quantization.distance import Distance
    from tools.quantization.gate import Verdict
    from tools.quantization.scheme import Scheme
    from tools.quantization.sensitivity import Report
    from tools.quantization.toolchains import Toolchain

DEFAULT_SLICES = (
    "arithmetic,benign,code,facts,greetings,instructions,json,lists,multi-turn,refusals,repeat,retrieval-100,"
    "retrieval-500,translation"
)

folder_option = click.option(
    "--model", "folder", type=click.Path(path_type=Path), required=True, metavar="FOLDER", help="Hugging Face folder."
)
text_option = click.option(
    "--text",
    type=click.Path(path_type=Path),
    required=True,
    metavar="FILE",
    help="Plain text, .jsonl with a `text` or `messages` per line, or a folder of Python files.",
)
held_out_option = click.option(
    "--text",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Texts as for `calibrate`. Default: held-out questions of the slices with their correct answers, for a chat "
    "model.",
)
window_option = click.option("--window", default=512, show_default=True, help="Tokens per passage.")
tokens_option = click.option("--tokens", default=32_768, show_default=True, help="Total number of tokens from --text.")
output_option = click.option(
    "--output", type=click.Path(path_type=Path), metavar="FILE", help="File for the result as JSON."
)
json_option = click.option("--json", "as_json", is_flag=True, help="Print the whole result as JSON.")
export_option = click.option(
    "--export", type=click.Path(path_type=Path), metavar="FILE", help="File for the parts to keep, for other tools."
)
keep_list_option = click.option(
    "--keep-list",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="File that `sensitivity --export` or `gate --export` wrote.",
)
_SCHEME_OPTIONS = (
    click.option("--scheme", "name", type=click.Choice(["int8", "fp8"]), default="fp8", show_default=True),
    click.option(
        "--weights",
        type=click.Choice(["tensor", "channel"]),
        default="channel",
        show_default=True,
        help="Granularity of the fp8 scales of weights.",
    ),
    click.option(
        "--activations",
        type=click.Choice(["none", "token", "tensor"]),
        default="token",
        show_default=True,
        help="Granularity of the fp8 scales of activations; none leaves activations unrounded.",
    ),
    click.option(
        "--calibration", default="", metavar="FILE", help="File that `calibrate` wrote, for --activations tensor."
    ),
    click.option(
        "--also",
        multiple=True,
        metavar="PART",
        help="A part to round too, such as head, embedding or 'layers.*.kv'. Repeat for several.",
    ),
    click.option(
        "--keep",
        multiple=True,
        metavar="PART",
        help="A part not to round, such as layers.0.qkv or 'layers.1.*'. Repeat for several.",
    ),
    click.option(
        "--kl-budget", default=0.02, show_default=True, help="Maximum KL divergence per token, which must be proven."
    ),
    click.option(
        "--held-out", default=30, show_default=True, help="Without --text: number of questions of each slice."
    ),
)


def scheme_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options of the scheme and its KL budget."""
    for option in reversed(_SCHEME_OPTIONS):
        command = option(command)
    return command


@click.group()
def quantization() -> None:
    """Judge a rounded model, calibrate FP8 and write FP8 checkpoints."""


@quantization.command()
@folder_option
@text_option
@window_option
@tokens_option
@output_option
def calibrate(folder: Path, text: Path, window: int, tokens: int, output: Path | None) -> None:
    """Find the largest input of every layer, for fixed activation scales."""
    from engines.embedded.quantization.calibration import calibrate as run

    found = run(folder, _passages(folder, text, window, tokens, 0, 0))
    for name, amax in found.amax.items():
        click.echo(f"{name:<24} {amax:10.3f}")
    _write(output, found)


@quantization.command()
@folder_option
@click.option(
    "--for",
    "toolchain",
    type=click.Choice(["modelopt", "llm-compressor"]),
    required=True,
    help="Format: modelopt for TensorRT-LLM, SGLang and vLLM, llm-compressor for SGLang and vLLM.",
)
@click.option(
    "--calibration",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="File that `calibrate` wrote, for one fixed input scale per matrix. Default: scales per token and output "
    "channel.",
)
@keep_list_option
@click.option(
    "--kv-cache",
    type=click.Choice(["auto", "fp8"]),
    default="auto",
    show_default=True,
    help="With fp8, engines keep keys and values in FP8, with scales from the calibration.",
)
@click.option(
    "--output",
    type=click.Path(path_type=Path),
    required=True,
    metavar="FOLDER",
    help="Output folder, which must be new or empty.",
)
def export(
    folder: Path, toolchain: Toolchain, calibration: Path | None, keep_list: Path | None, kv_cache: str, output: Path
) -> None:
    """Write the model as an FP8 checkpoint that engines can load: weights, scales and the unrounded parts."""
    from engines.embedded.quantization.calibration import read_calibration
    from tools.quantization.fp8_checkpoint import write
    from tools.quantization.keep_list import read_keep_list

    written = write(
        folder,
        output,
        toolchain,
        None if calibration is None else read_calibration(str(calibration)),
        None if keep_list is None else read_keep_list(keep_list),
        fp8_kv_cache=kv_cache == "fp8",
    )
    click.echo(f"{output}: {written.rounded} matrices in FP8, {len(written.ignored)} kept as they are")


@quantization.command()
@folder_option
@held_out_option
@window_option
@tokens_option
@scheme_options
@click.option("--dtype", type=click.Choice(["float32", "bfloat16"]), default="float32", show_default=True)
@output_option
@export_option
@json_option
def sensitivity(
    folder: Path,
    text: Path | None,
    window: int,
    tokens: int,
    kl_budget: float,
    held_out: int,
    dtype: str,
    output: Path | None,
    export: Path | None,
    as_json: bool,
    **scheme: Any,
) -> None:
    """Round each part alone, measure KL per token on held-out text, and name the parts to keep."""
    from tools.quantization.sensitivity import measure

    passages = _passages(folder, text, window, tokens, held_out, 0)
    report = measure(folder, passages, _scheme(scheme), kl_budget, dtype, _progress())
    if as_json:
        click.echo(msgspec.json.encode(report))
    else:
        _show(report)
    _write(output, report)
    _export(export, report)


@quantization.command()
@folder_option
@held_out_option
@window_option
@tokens_option
@scheme_options
@click.option("--margin", default=0.02, show_default=True, help="Share of items by which a slice may be worse.")
@click.option("--slices", default=DEFAULT_SLICES, show_default=True, help="Slices, separated by commas, or `none`.")
@click.option("--items", default=1600, show_default=True, help="Maximum number of items of each slice.")
@click.option(
    "--first-seed", default=0, show_default=True, help="Seed of the first item. Another seed selects other items."
)
@keep_list_option
@output_option
@export_option
@json_option
def gate(
    folder: Path,
    text: Path | None,
    window: int,
    tokens: int,
    kl_budget: float,
    held_out: int,
    margin: float,
    slices: str,
    items: int,
    first_seed: int,
    output: Path | None,
    export: Path | None,
    keep_list: Path | None,
    as_json: bool,
    **scheme: Any,
) -> None:
    """Compare a rounded model with the original: KL per token, next tokens, and each slice separately.

    The command goes over the texts once for each part, then asks both models the items of the slices. This takes
    minutes on a processor for a model of 10 million parameters; the progress shows the elapsed seconds. Exit code 0:
    pass; 1: fail, or an error; 2: a wrong option; 3: inconclusive. A pass is a proof, not merely a lack of evidence.

    Exit code: 0 pass, 1 fail (or an error), 2 a wrong option, 3 inconclusive. A pass is proof, not a lack of evidence.
    """
    from tools.quantization.gate import run

    chosen = _scheme(scheme) if keep_list is None else _kept(_scheme(scheme), keep_list)
    passages = _passages(folder, text, window, tokens, held_out, first_seed)
    rules = _slices(folder, slices, margin, items)
    found = run(folder, chosen, passages, kl_budget, margin, rules, first_seed=first_seed, progress=_progress())
    if as_json:
        click.echo(msgspec.json.encode(found))
    else:
        _show_verdict(found)
    _write(output, found)
    _export(export, found.report)
    raise SystemExit(GATE_EXIT[found.decision])


def _scheme(fields: dict[str, Any]) -> Scheme:
    from tools.quantization.scheme import Scheme

    return msgspec.convert(fields, Scheme)


def _passages(
    folder: Path, text: Path | None, window: int, tokens: int, held_out: int, first_seed: int
) -> list[Passage]:
    from engines.embedded.quantization.passages import read_passages
    from engines.tokenizer.tokenizer import Tokenizer
    from evals.slices.registry import find
    from tools.quantization.gate import passages_of

    tokenizer = Tokenizer.load(folder)
    if text is not None:
        return read_passages(text, tokenizer, window, tokens)
    if not tokenizer.has_chat_template:
        raise click.UsageError(f"{folder} takes no conversations: give held-out texts with --text FILE")
    return passages_of(map(find, DEFAULT_SLICES.split(",")), tokenizer, held_out, first_seed)


def _slices(folder: Path, names: str, margin: float, items: int) -> dict[str, tuple[Slice, SliceRule]]:
    from engines.tokenizer.tokenizer import Tokenizer
    from evals.gate import SliceRule
    from evals.slices.registry import find

    if names == "none" or not Tokenizer.load(folder).has_chat_template:
        return {}
    try:
        rule = SliceRule(margin=margin, budget=items, first_look=min(items, 200))
        return {name: (find(name), rule) for name in names.split(",")}
    except (KeyError, ValueError) as error:
        raise click.UsageError(str(error.args[0])) from None


def _kept(scheme: Scheme, path: Path) -> Scheme:
    """The scheme that also keeps the parts of a list. Raises UsageError if another scheme measured the list."""
    from tools.quantization.keep_list import read_keep_list

    found = read_keep_list(path)
    measured, requested = ((each.name, each.weights, each.activations, each.also) for each in (found.scheme, scheme))
    if measured != requested:
        raise click.UsageError(
            f"--keep-list {path} was measured with {_told(found.scheme)}, and {_told(scheme)} is requested; give the "
            "same options, or measure sensitivity again"
        )
    return msgspec.structs.replace(scheme, keep=(*scheme.keep, *found.parts))


def _told(scheme: Scheme) -> str:
    also = "".join(f" --also {part}" for part in scheme.also)
    return f"--scheme {scheme.name} --weights {scheme.weights} --activations {scheme.activations}{also}"


def _progress() -> Callable[[str], None]:
    """A function that prints each step with the seconds before it."""
    began_s = time.monotonic()
    return lambda step: click.echo(f"  {time.monotonic() - began_s:6.0f} s  {step}", err=True)


def _show(report: Report) -> None:
    tokens, texts = report.rounded.tokens, report.rounded.texts
    click.echo(
        f"{report.model} in {report.scheme.name}, {tokens:,} tokens of {texts:,} texts; "
        "one part rounded at a time, worst first"
    )
    click.echo(f"{'part':<24} {'KL/token':>10} {'at most':>10} {'same top':>9} {'perplexity':>11} {'saves':>12}")
    for one in report.parts:
        saved = one.part.kept_bytes - one.part.rounded_bytes
        note = "" if one.by_scheme else "  not rounded by this scheme"
        click.echo(f"{_row(one.part.name, one.distance)} {saved:12,}{note}")
    click.echo(_row("all of the scheme", report.rounded))
    click.echo(f"{'sum of its parts':<24} {report.sum_of_parts:10.6f}")
    saved = report.plain_bytes - report.rounded_bytes
    click.echo(f"{report.plain_bytes:,} bytes become {report.rounded_bytes:,}, {saved:,} fewer.")
    if report.keep:
        click.echo(_row("all but those to keep", report.kept))
        click.echo(
            f"To stay within {report.budget_kl:g} keep {', '.join(report.keep)}: {report.extra_bytes:,} bytes more."
        )
    else:
        click.echo(f"Within {report.budget_kl:g}: every part of the scheme may be rounded.")


def _show_verdict(found: Verdict) -> None:
    _show(found.report)
    click.echo()
    for check in found.checks:
        click.echo(f"{check.name:<24} {check.decision:<13} {check.reason}")
    for one in found.slices.slices if found.slices is not None else ():
        click.echo(f"{one.slice:<24} {one.decision:<13} {100 * one.difference:+.2f} points; {one.reason}")
    click.echo(f"{found.decision}: {found.reason}")


def _row(name: str, distance: Distance) -> str:
    kl = distance.kl_per_token
    return (
        f"{name:<24} {kl.value:10.6f} {kl.upper:10.6f} {distance.same_top.value:9.4f} "
        f"{distance.perplexity_ratio.value:11.5f}"
    )


def _export(path: Path | None, report: Report) -> None:
    from tools.quantization.keep_list import keep_list

    _write(path, keep_list(report))


def _write(output: Path | None, value: msgspec.Struct) -> None:
    if output is not None:
        output.write_bytes(msgspec.json.format(msgspec.json.encode(value), indent=2) + b"\n")
