"""`slipstream tools plan` end to end: its tables, its JSON, its refusals, and the page that shows them."""

from __future__ import annotations

import math
import re
import shlex
from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner

from contracts.errors import ConfigError
from engines.performance.catalog import GPUS, MODELS
from engines.performance.precision import Precision
from slipstream.commands import plan as command
from slipstream.commands.plan import plan
from slipstream.no_fleet import NoFleetFits
from slipstream.printed_page import SHOWN, with_output
from slipstream.trace_workload import trace_workload
from tests.deployment import ROOT
from tools.planning.prices import PUBLISHED, SOURCE
from tools.simulator.trace import read_trace

PAGE = ROOT / "docs" / "guides" / "plan.md"
CHAT = ("--requests-per-s", "50", "--prompt-tokens", "3000", "--output-tokens", "400")
ALL = tuple(word for gpu in GPUS for word in ("--gpu", gpu))
LINE = '{{"timestamp":{at},"input_length":{tokens},"output_length":20,"hash_ids":[{ids}]}}\n'


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    """100 requests a minute for two minutes, then 50 a minute for two: 1,600 tokens, the first 1,024 common to all."""
    path = tmp_path / "mine.jsonl"
    at_ms = [round(number * 600) for number in range(200)] + [120_000 + number * 1_200 for number in range(100)]
    lines = (LINE.format(at=at, tokens=1_600, ids=f"0,1,{100 + at},{1_000_000 + at}") for at in at_ms)
    path.write_text("".join(lines))
    return path


def run(*words: str) -> str:
    result = CliRunner().invoke(plan, list(words), catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout


def test_the_page_shows_what_the_command_prints() -> None:
    page = PAGE.read_text()
    assert len(SHOWN.findall(page)) == page.count("```text") == 2
    assert with_output(page) == page, "run `make docs`"


def test_every_command_of_the_page_runs(trace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(trace.parent)
    blocks = re.findall(r"^```sh\n(.*?)^```$", PAGE.read_text(), re.M | re.S)
    lines = [line for block in blocks for line in block.replace("\\\n", "").splitlines()]
    assert len(lines) == 5
    for line in lines:
        words = shlex.split(line)
        assert words[:3] == ["slipstream", "tools", "plan"]
        run(*words[3:])


@pytest.mark.parametrize("words", [CHAT, (*CHAT, *ALL, "--precision", "bf16", "--precision", "nvfp4")])
def test_a_table_is_eighty_columns_wide(words: tuple[str, ...]) -> None:
    assert max(len(line) for line in run(*words).splitlines()) <= 80


def test_each_number_in_the_table_has_an_error_beside_it_or_says_that_none_was_measured() -> None:
    told = run(*CHAT, "--tensor-parallel", "4", "--ttft-ms", "2000", "--errors")
    for side in ("prefill", "KV memory", "bandwidth", "prefill and decoding together", "queueing"):
        line = next(line for line in told.splitlines() if line.startswith(f"{side}  "))
        assert re.search(r"(not measured|[+-]\d+( to [+-]\d+)? %)$", line), line
    assert " binds " in told
    assert "decides" in told


def by_error(told: str, figure: str) -> tuple[float, ...]:
    """A figure of the table, and the two numbers of the line below it."""
    below = re.search(rf"^{figure} +([\d.,]+).*\n- by (?:its|the) error.*? +([\d.,]+)(?: ms)? to ([\d.,]+)", told, re.M)
    assert below is not None, told
    return tuple(float(number.replace(",", "")) for number in below.groups())


AUTOCOMPLETE = ("--model", "llama-8b", "--requests-per-s", "2000", "--prompt-tokens", "6000", "--output-tokens", "25",
                "--cached", "0.98", "--ttft-ms", "200", "--tpot-ms", "10")  # fmt: skip


def test_what_a_figure_is_without_its_error_stands_below_it() -> None:
    told = run(*AUTOCOMPLETE, "--errors")
    errors = msgspec.json.decode(run(*AUTOCOMPLETE, "--json"))["plans"][0]["errors"]
    for figure, error in (
        ("first token, p99", errors["formula"]["ttft_p99"]),
        ("time per token", errors["formula"]["time_per_token"]),
        ("rate", errors["saturated_rate"]),
    ):
        planned, low, high = by_error(told, figure)
        assert low <= high
        assert (planned / high - 1, planned / low - 1) == pytest.approx(error, abs=0.03)
    assert "- by its error" in told.split("\nrate ")[1].splitlines()[1]
    unmeasured = run(*CHAT, "--gpu", "a100", "--ttft-ms", "3000", "--tensor-parallel", "8", "--errors")
    assert "- by its error" not in unmeasured.split("\nrate ")[1].splitlines()[1]


def test_a_fleet_is_told_by_the_error_of_what_decides_and_no_smaller_than_the_others_ask() -> None:
    only = msgspec.json.decode(run(*AUTOCOMPLETE, "--json"))["plans"][0]
    needed, low, high = by_error(run(*AUTOCOMPLETE, "--errors"), "fleet")
    assert needed == only["replicas_needed"]
    assert [low, high] == only["replicas_by_error"]
    sides = {side["side"]: side for side in only["sides"]}
    decides = sides.pop(only["decided_by"])
    assert high == math.ceil(decides["replicas"] / (1 + decides["error"][0]))
    # by the error alone it would be fewer than bandwidth asks for
    assert decides["replicas"] / (1 + decides["error"][1]) < sides["bandwidth"]["replicas"]
    assert low == math.ceil(max(side["replicas"] for side in sides.values())) < needed
    few = ("--requests-per-s", "1", "--prompt-tokens", "3000", "--output-tokens", "400")
    told = msgspec.json.decode(run(*few, "--json"))["plans"][0]
    assert (told["decided_by"], told["replicas_by_error"]) == ("queueing", None), "no error changes this decision"
    assert "- by the error that decides" not in run(*few, "--errors")


def test_the_pages_worked_example_is_that_of_its_table() -> None:
    page = " ".join(PAGE.read_text().split())
    worked = re.search(
        r"the time to first token of (\S+) ms has an error of (\S+ to \S+ %): it is (\S+) to (\S+) times .*? between "
        r"\S+ / \S+ = (\S+ ms) and \S+ / \S+ = (\S+ ms)\.",
        page,
    )
    assert worked is not None
    planned, error, least, most, low, high = worked.groups()
    result = f"{low} to {high}"
    assert re.search(rf"first token, p99 {planned} ms in this fleet {re.escape(error)} - by its error {result} ", page)
    assert f"{planned} / {most} = {float(planned) / float(most):.0f} ms and {planned} / {least} = " in page
    assert float(planned) / float(least) == pytest.approx(float(result.split()[3]), abs=0.5)


@pytest.mark.parametrize(
    ("words", "verdict", "said"),
    [
        (("20", "3000", "20", "0"), "split", "4 replicas for prefill and 1 for decoding would do, 5 where 7 do both."),
        (
            ("5", "3000", "20", "0.5"),
            "keep together",
            "2 where 2 do both: streams would be smoother, for as many replicas.",
        ),
        (("5", "3000", "20", "0"), "keep together", "3 where 2 do both: streams would be smoother, for 1 more."),
        (
            ("0.1", "300", "20", "0"),
            "keep together",
            "Split, 1 replica for prefill and 1 for decoding would do, 2 where 1 does both: streams would be smoother, "
            "for 1 more.",
        ),
    ],
)
def test_what_takes_no_fewer_cards_split_is_kept_together(words: tuple[str, ...], verdict: str, said: str) -> None:
    options = ("--requests-per-s", "--prompt-tokens", "--output-tokens", "--cached")
    asked = [word for pair in zip(options, words, strict=True) for word in pair]
    told = " ".join(run(*asked, "--tensor-parallel", "4", "--ttft-ms", "1500").split())
    assert f"prefill and decoding: {verdict}. " in told
    assert said in told


def test_the_answer_stands_first_and_errors_only_where_they_are_asked_for() -> None:
    plain, whole = run(*CHAT), run(*CHAT, "--errors")
    only = msgspec.json.decode(run(*CHAT, "--json"))["plans"][0]
    first = " ".join(plain.split("\n\n")[0].split())
    month = f"{only['plan']['cost']['per_month']:,.0f}"
    assert first.startswith(f"{only['replicas_needed']} replicas of 8 x H100 ({only['cards']} GPUs): {month} dollars")
    assert first == " ".join(whole.split("\n\n")[0].split())
    assert "error" in whole.replace("--errors", "")
    assert not re.search(r"(?<!--)error", plain)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            ("--price", "h200=2"),
            r"^--price h200=2: no h200 is planned, only h100; add --gpu h200, or leave the price out",
        ),
        (("--gpu", "b200", "--gpu", "a100", "--price", "h100=2.5"), r"h100=2\.5: .*only b200, a100"),
    ],
)
def test_a_price_of_a_card_that_is_not_planned_is_refused(words: tuple[str, ...], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        run(*CHAT, *words)


def test_what_no_test_computes_anew_is_told_with_its_source_and_its_day() -> None:
    told = " ".join(run(*CHAT, "--tensor-parallel", "4", "--ttft-ms", "2000", "--errors").split())
    assert "-1 to +6 % the median first token; -2 to +4 % its p99" in told
    assert "(python -m benchmarks.simulator_validation, 2026-11-20, in no test)" in told
    assert (
        "-22 to -19 % (slipstream tools simulate of Mooncake's recorded conversations, 2026-11-22, in no test)" in told
    )
    errors = msgspec.json.decode(run(*CHAT, "--json"))["plans"][0]["errors"]
    for name in ("modelled_ttft_p50", "modelled_ttft_p99", "modelled_time_per_token", "whole_fleet"):
        assert errors[name].keys() == {"error", "source", "measured_on"}


def test_json_holds_the_plan_its_sides_and_its_errors() -> None:
    told = msgspec.json.decode(run(*CHAT, *ALL, "--precision", "nvfp4", "--json"))
    assert [each["projected"] for each in told["plans"]] == [True]
    only = told["plans"][0]
    assert only["errors"]["saturated_rate"] is None
    assert {side["side"]: side["replicas"] for side in only["sides"]}[only["decided_by"]] <= only["replicas_needed"]
    assert only["cards"] == only["replicas_needed"] * only["plan"]["node"]["gpus"]
    assert [each["kind"] for each in told["refused"]] == ["A100 nvfp4", "H100 nvfp4", "H200 nvfp4"]


def test_one_gpu_is_not_told_in_the_plural_nor_hardly_any_load_as_none() -> None:
    little = ("--requests-per-s", "0.02", "--prompt-tokens", "300", "--output-tokens", "20")
    told = run("--model", "llama-8b", *little)
    assert re.search(r"^fleet +1  1 GPU$", told, re.M)
    assert not re.search(r"\b1 (GPUs|replicas)\b", told)
    assert "asked     0.02 requests/s" in told
    assert not re.search(r"\s0\.0(\s|$)", told), told


@pytest.mark.parametrize("rate", ["0.0001", "100000"])
def test_what_is_little_of_a_small_model_is_not_shown_as_none(rate: str) -> None:
    """Weights, steps, the replicas of a load that is hardly any, and what a token costs where there are many."""
    small = ("--model", str(ROOT / "models" / "slipstream-chat"), "--prompt-tokens", "100", "--output-tokens", "20")
    told = run(*small, "--requests-per-s", rate)
    assert not re.search(r"(?<![\d.,])0\.0+(?![\d])", told), told
    assert "- weights          0.0037 GB" in told
    assert ("<0.0001" in told) is (rate == "0.0001")


def test_a_projection_is_called_one() -> None:
    assert "NVFP4, a projection" in run(*CHAT, "--gpu", "b200", "--precision", "nvfp4")
    assert "* a projection" in run(*CHAT, "--gpu", "b200", "--precision", "nvfp4", "--precision", "fp8")
    assert "projection" not in run(*CHAT, "--gpu", "b200", "--gpu", "h100")


def test_a_price_of_ones_own_is_what_the_bill_is_made_of() -> None:
    def month(*words: str) -> float:
        told = msgspec.json.decode(run(*CHAT, "--tensor-parallel", "8", "--json", *words))
        cost: float = told["plans"][0]["plan"]["cost"]["per_month"]
        return cost

    assert month("--price", f"h100={PUBLISHED['H100'] * 2}") == pytest.approx(2 * month())
    assert SOURCE in " ".join(run(*CHAT).split())
    assert SOURCE not in " ".join(run(*CHAT, "--price", "h100=2").split())
    for wrong in ("h100", "h100=0", "h100=x", "v100=2", "h100=inf"):
        with pytest.raises(ConfigError, match="write a GPU and dollars per hour"):
            run(*CHAT, "--price", wrong)


def test_a_trace_says_what_is_asked(trace: Path) -> None:
    workload = trace_workload(read_trace(trace))
    assert workload.requests_per_s == pytest.approx(100 / 60)
    assert workload.prompt_tokens == 1_600
    assert workload.output_tokens == 20
    assert workload.cached_share == pytest.approx(299 / 300 * 1_024 / 1_600)
    assert workload.longest_tokens == 1_620
    assert (workload.prompt_scv, workload.prompt_p99_tokens) == (0, 1_600)
    assert workload.average_share == pytest.approx(0.75, abs=0.01)
    told = msgspec.json.decode(run("--trace", str(trace), "--requests-per-s", "80", "--cached", "0.1", "--json"))
    asked = told["plans"][0]["plan"]["workload"]
    assert (asked["requests_per_s"], asked["cached_share"], asked["prompt_tokens"]) == (80, 0.1, 1_600)


def test_what_is_missing_or_impossible_is_said() -> None:
    with pytest.raises(ConfigError, match="give --prompt-tokens, --output-tokens, or --trace FILE"):
        run("--requests-per-s", "5")
    with pytest.raises(ConfigError, match="--model llama-9000: not a folder, not a GGUF file and not one of llama-70b"):
        run(*CHAT, "--model", "llama-9000")


@pytest.mark.parametrize(
    ("words", "option", "said"),
    [
        (
            ("--ttft-ms", "5"),
            "--ttft-ms",
            r"^--ttft-ms: 5; no fleet is large enough\. With H100 fp8: .*--ttft-ms \d+ or mo",
        ),
        (("--tpot-ms", "0.5"), "--tpot-ms", r"^--tpot-ms: 0\.5; .*There --tpot-ms 7 or more would be enough"),
        (("--tensor-parallel", "16"), "--tensor-parallel", r"^--tensor-parallel: 16; .*use at most 8"),
        (
            ("--context-tokens", "90000000"),
            "--context-tokens",
            r"^--context-tokens: 90,000,000; .*at most 3,084,716 tok",
        ),
        (("--precision", "nvfp4"), "--precision", r"^--precision: nvfp4; .*choose bf16 or fp8"),
        (
            ("--tensor-parallel", "1", "--precision", "bf16"),
            "--tensor-parallel",
            r"^--tensor-parallel: 1; .*2 GPUs would hold them",
        ),
    ],
)
def test_where_no_fleet_fits_the_option_its_value_and_what_would_do_are_said(
    words: tuple[str, ...], option: str, said: str
) -> None:
    for more in ((), ("--json",)):
        with pytest.raises(NoFleetFits, match=said) as refused:
            run(*CHAT, *words, *more)
        assert refused.value.param == option


def test_of_several_kinds_none_of_which_fits_the_nearest_is_told() -> None:
    with pytest.raises(NoFleetFits, match=r"With H100 fp8 \(tried: A100 bf16, H100 fp8\): no number") as refused:
        run(*CHAT, "--gpu", "a100", "--gpu", "h100", "--ttft-ms", "5")
    least = re.search(r"--ttft-ms (\d+) or more", refused.value.message)
    assert least is not None
    assert "fleet" in run(*CHAT, "--ttft-ms", least[1])


def test_of_a_promise_that_is_too_short_twice_both_values_are_told() -> None:
    with pytest.raises(NoFleetFits, match="breaks the time per token and the time to first token") as refused:
        run(*CHAT, "--ttft-ms", "5", "--tpot-ms", "0.5")
    assert "more GPUs a replica" not in refused.value.message
    told = re.search(r"There --tpot-ms (\d+) and --ttft-ms (\d+) or more would be enough", refused.value.message)
    assert told is not None
    assert "fleet" in run(*CHAT, "--tpot-ms", told[1], "--ttft-ms", told[2])


@pytest.mark.parametrize("wrong", ["nan", "inf", "0", "2e6"])
def test_a_rate_is_a_number_that_a_fleet_can_be_asked_for(wrong: str) -> None:
    assert CliRunner().invoke(plan, [*CHAT, "--requests-per-s", wrong]).exit_code == 2


def test_a_model_may_be_a_folder() -> None:
    told = run(*CHAT, "--model", str(ROOT / "models" / "slipstream-code"), "--tensor-parallel", "1")
    assert "slipstream-code in FP8, 1 x H100 a replica" in told


def test_what_can_be_chosen_is_what_is_modelled() -> None:
    """Named once more in the command, which imports nothing of it before it runs."""
    assert tuple(GPUS) == command.GPUS
    assert tuple(MODELS) == command.MODELS
    assert tuple(each.value for each in Precision) == command.PRECISIONS
    assert {card.name for card in GPUS.values()} == set(PUBLISHED)
