"""`slipstream tools plan`: the number of machines for a workload, the first bottleneck, and the cost."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click
import msgspec

from contracts.errors import ConfigError
from slipstream.commands.finite import Finite

if TYPE_CHECKING:
    from engines.performance.model_shape import ModelShape
    from tools.planning.plan import Hardware
    from tools.planning.workload import Workload

GPUS = ("a100", "h100", "h200", "b200")
PRECISIONS = ("bf16", "fp8", "nvfp4")
MODELS = ("llama-70b", "llama-8b", "llama-7b", "qwen-32b")


ABOVE_0 = Finite(min=0, min_open=True)
RATE = Finite(min=0, max=1_000_000, min_open=True)
TOKENS = Finite(min=1, max=100_000_000)


@click.command()
@click.option(
    "--model",
    default=MODELS[0],
    show_default=True,
    metavar="NAME|FOLDER",
    help=f"Model: {', '.join(MODELS)}, or a Hugging Face folder with a config.json.",
)
@click.option(
    "--gpu",
    "gpus",
    type=click.Choice(GPUS),
    multiple=True,
    help="GPU type. Repeat to compare several.  [default: h100]",
)
@click.option(
    "--precision",
    "precisions",
    type=click.Choice(PRECISIONS),
    multiple=True,
    help="Number format of the weights. Repeat to compare several. Default: fp8 if the GPU supports it, otherwise "
    "bf16. nvfp4 is a projection.",
)
@click.option(
    "--tensor-parallel",
    type=click.IntRange(1, 64),
    metavar="GPUS",
    help="Number of GPUs per replica. Default: the cheapest number.",
)
@click.option(
    "--trace",
    type=click.Path(path_type=Path, dir_okay=False, exists=True),
    metavar="FILE",
    help="Workload from `slipstream usage workload --export`. The options below replace parts of it.",
)
@click.option("--requests-per-s", type=RATE, help="Request rate at the peak.")
@click.option("--prompt-tokens", type=TOKENS, help="Mean.")
@click.option("--output-tokens", type=TOKENS, help="Mean.")
@click.option(
    "--cached",
    type=Finite(0, 1, max_open=True),
    help="Share of the prompt tokens that are found in the prefix cache. Default: 0.",
)
@click.option(
    "--context-tokens",
    type=click.IntRange(min=1),
    help="Maximum length of prompt and response together. Default: the sum of the means.",
)
@click.option(
    "--prompt-cv",
    type=Finite(0, 100),
    help="Standard deviation of the prompt lengths divided by their mean; 0 if all are equal. Default: 1.",
)
@click.option(
    "--average",
    type=Finite(0, 1, min_open=True),
    help="Mean load over the month as a share of the peak. Default: 1.",
)
@click.option(
    "--ttft-ms", type=ABOVE_0, default=700.0, show_default=True, help="Objective for the time to first token, p99."
)
@click.option("--tpot-ms", type=ABOVE_0, default=40.0, show_default=True, help="Objective for the mean time per token.")
@click.option(
    "--gap-ms",
    type=ABOVE_0,
    help="Objective for the longest pause in a stream, which makes chunks smaller. Default: none.",
)
@click.option(
    "--price",
    "prices",
    multiple=True,
    metavar="GPU=DOLLARS",
    help="Hourly price of a GPU, such as h100=2.50. Repeat for several. Default: a published list.",
)
@click.option(
    "--transfer-gb-s",
    type=ABOVE_0,
    default=50.0,
    show_default=True,
    help="Bandwidth between machines for the keys and values of split pools, in GB/s; 50 is a 400 Gbit/s link.",
)
@click.option("--errors", "with_errors", is_flag=True, help="Show the measured error of each figure.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def plan(
    model: str,
    gpus: Sequence[str],
    precisions: Sequence[str],
    tensor_parallel: int | None,
    trace: Path | None,
    requests_per_s: float | None,
    prompt_tokens: float | None,
    output_tokens: float | None,
    cached: float | None,
    context_tokens: int | None,
    prompt_cv: float | None,
    average: float | None,
    ttft_ms: float,
    tpot_ms: float,
    gap_ms: float | None,
    prices: Sequence[str],
    transfer_gb_s: float,
    with_errors: bool,
    as_json: bool,
) -> None:
    """Size hardware for a workload: machines, the first bottleneck, cost.

    The report begins with the answer. All figures are computed, not measured; --errors shows how far the last
    measurements differed from them.

    \b
    Examples:
      slipstream tools plan --requests-per-s 50 --prompt-tokens 3000 --output-tokens 400
      slipstream tools plan --trace mine.jsonl --gpu h100 --gpu h200 --gpu b200
      slipstream tools plan --trace mine.jsonl --requests-per-s 80 --price h100=2.20 --json
    """
    from slipstream.no_fleet import no_fleet
    from slipstream.plan_report import Refusal, comparison, reported, text_of
    from tools.planning.plan import cheapest
    from tools.planning.workload import Promise

    fields = {
        "requests_per_s": requests_per_s,
        "prompt_tokens": prompt_tokens,
        "output_tokens": output_tokens,
        "cached_share": cached,
        "longest_tokens": context_tokens,
        "prompt_scv": None if prompt_cv is None else prompt_cv**2,
        "prompt_p99_tokens": None if prompt_cv is None else 0.0,
        "average_share": average,
    }
    workload = _workload(trace, {name: value for name, value in fields.items() if value is not None})
    promise = Promise(ttft_ms / 1e3, tpot_ms / 1e3, (gap_ms or 0.0) / 1e3)
    shape = _shape(model)
    kinds = _kinds(gpus or ("h100",), precisions, tensor_parallel, prices, transfer_gb_s)
    plans, refused = [], {}
    for name, hardware in kinds.items():
        try:
            plans.append(cheapest(shape, hardware, workload, promise))
        except ConfigError as error:
            refused[name] = error
    if not plans:
        options = {
            "--ttft-ms": f"{ttft_ms:g}",
            "--tpot-ms": f"{tpot_ms:g}",
            "--gap-ms": "none" if gap_ms is None else f"{gap_ms:g}",
            "--precision": ", ".join(precisions) or "the GPU's usual",
            "--tensor-parallel": str(tensor_parallel or "1, 2, 4 or 8"),
            "--context-tokens": f"{workload.context_tokens:,}",
        }
        raise no_fleet(refused, options)
    refusals = [Refusal(name, error.message) for name, error in refused.items()]
    if as_json:
        result = {"plans": [reported(each) for each in plans], "refused": refusals}
        click.echo(msgspec.json.encode(result).decode())
    else:
        click.echo(text_of(plans[0], with_errors) if len(kinds) == 1 else comparison(plans, refusals))


def _shape(model: str) -> ModelShape:
    from engines.gguf.file import is_gguf
    from engines.performance.catalog import MODELS as SHAPES
    from engines.performance.model_folder import read_shape

    if model in SHAPES:
        return SHAPES[model]
    if not Path(model).is_dir() and not is_gguf(Path(model)):
        raise ConfigError(f"--model {model}: not a folder, not a GGUF file and not one of {', '.join(SHAPES)}")
    return read_shape(Path(model))


def _workload(trace: Path | None, fields: dict[str, float]) -> Workload:
    from slipstream.trace_workload import trace_workload
    from tools.planning.workload import Workload
    from tools.simulator.trace import read_trace

    if trace is not None:
        return msgspec.structs.replace(trace_workload(read_trace(trace)), **fields)
    needed = ("requests_per_s", "prompt_tokens", "output_tokens")
    missing = [f"--{name.replace('_', '-')}" for name in needed if name not in fields]
    if missing:
        raise ConfigError(
            f"the workload is not known: give {', '.join(missing)}, or --trace FILE, as in `slipstream tools plan "
            "--requests-per-s 5 --prompt-tokens 2000 --output-tokens 300`"
        )
    return Workload(**fields)  # type: ignore[arg-type]  # every value is a number


def _kinds(
    gpus: Sequence[str],
    precisions: Sequence[str],
    tensor_parallel: int | None,
    prices: Sequence[str],
    transfer_gb_s: float,
) -> dict[str, list[Hardware]]:
    """The hardware of each GPU in each precision, once for each number of GPUs to choose from."""
    from engines.performance.catalog import GPUS as KNOWN_GPUS
    from engines.performance.precision import Precision
    from tools.planning.plan import TENSOR_PARALLEL, Hardware
    from tools.planning.prices import PUBLISHED

    own = _own_prices(prices, gpus)
    kinds: dict[str, list[Hardware]] = {}
    for gpu in dict.fromkeys(gpus):
        kind = KNOWN_GPUS[gpu]
        for precision in dict.fromkeys(precisions or ("fp8" if kind.fp8_flops else "bf16",)):
            kinds[f"{kind.name} {precision}"] = [
                Hardware(
                    kind,
                    Precision(precision),
                    gpu_count,
                    own.get(gpu, PUBLISHED[kind.name]),
                    transfer_gb_s * 1e9,
                )
                for gpu_count in ((tensor_parallel,) if tensor_parallel else TENSOR_PARALLEL)
            ]
    return kinds


def _own_prices(prices: Sequence[str], gpus: Sequence[str]) -> dict[str, float]:
    """The prices by GPU. Raises ConfigError for a GPU that was not requested."""
    own = dict(_price(text) for text in prices)
    for gpu, price in own.items():
        if gpu not in gpus:
            raise ConfigError(
                f"--price {gpu}={price:g}: no {gpu} is planned, only {', '.join(dict.fromkeys(gpus))}; add --gpu "
                f"{gpu}, or leave the price out"
            )
    return own


def _price(text: str) -> tuple[str, float]:
    name, _, amount = text.partition("=")
    try:
        price = float(amount)
    except ValueError:
        price = 0.0
    if name not in GPUS or not 0 < price < float("inf"):
        known = ", ".join(GPUS)
        raise ConfigError(f"--price {text!r}: write a GPU and dollars per hour, such as h100=2.50; GPUs: {known}")
    return name, price
