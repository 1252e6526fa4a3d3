"""Rounding, distances and what to keep, each against a plain reference; the report of a whole model."""

from __future__ import annotations

import itertools
import json
import math
import random
from pathlib import Path
from typing import Literal

import msgspec
import pytest
import torch
from click.testing import CliRunner

from engines.embedded.config import EngineConfig
from engines.embedded.models.linears import PlainLinears
from engines.embedded.models.registry import load_model
from engines.embedded.quantization.passages import Passage
from engines.embedded.quantization.passes import batches, logits_of, logits_of_all
from engines.layers.fp8 import rounded
from evals.gate import Decision, GateVerdict
from evals.slices.registry import find
from evals.slices.split import Split
from slipstream.__main__ import cli
from tests.engines.embedded.tiny import CONFIG, SHIPPED, random_weights, write_model
from tools.quantization.asking import Asked
from tools.quantization.distance import Distance, Estimate, TextDistance, compare, distance
from tools.quantization.gate import Check, decide, judge_distance
from tools.quantization.keep import Choice, Cost, cheapest
from tools.quantization.keep_list import FORMAT, KeepList, modules_of
from tools.quantization.rounded_linears import RoundedLinears
from tools.quantization.scheme import Rounder, Scheme, int8_keys_and_values
from tools.quantization.sensitivity import measure
from tools.quantization.switched_model import SwitchedModel

CHAT = SHIPPED / "slipstream-chat"
PROMPT = [5, 17, 400, 33, 2000, 9, 9, 1, 77, 310, 12]
PASSAGES = [Passage(PROMPT), Passage(PROMPT[::-1], text=1), Passage(PROMPT[3:] + PROMPT[:5], text=2)]


@pytest.fixture(scope="module")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_model(tmp_path_factory.mktemp("models") / "tiny", CONFIG, random_weights(CONFIG))


def e4m3_value(code: int) -> float:
    """What a code means, by the format's definition (Micikevicius et al. 2022): 1 sign, 4 exponent, 3 mantissa bits."""
    sign, exponent, mantissa = -1.0 if code >> 7 else 1.0, code >> 3 & 15, code & 7
    if exponent == 15 and mantissa == 7:
        return math.nan
    return sign * (mantissa / 8 * 2.0**-6 if exponent == 0 else (1 + mantissa / 8) * 2.0 ** (exponent - 7))


VALUES = sorted({value for code in range(256) if not math.isnan(value := e4m3_value(code))})
EVEN = {e4m3_value(code) for code in range(256) if code % 2 == 0}


def nearest(x: float) -> float:
    """By trying all: the nearest number, of two the one whose last bit is 0, and none beyond the largest."""
    return min(VALUES, key=lambda value: (abs(value - x), value not in EVEN))


def test_fp8_codes_are_those_of_the_format() -> None:
    codes = torch.arange(256, dtype=torch.uint8).view(torch.float8_e4m3fn).float().tolist()
    for code, value in enumerate(codes):
        expected = e4m3_value(code)
        assert (math.isnan(value) and math.isnan(expected)) or value == expected
    assert max(VALUES) == 448


def test_fp8_rounds_to_the_nearest_even_and_saturates() -> None:
    middles = [(low + high) / 2 for low, high in itertools.pairwise(VALUES)]
    generator = random.Random(3)
    others = [generator.uniform(-500, 500) for _ in range(300)] + [generator.uniform(-0.05, 0.05) for _ in range(300)]
    found = rounded(torch.tensor(VALUES + middles + others), torch.tensor(1.0)).tolist()
    exact = torch.tensor(VALUES + middles + others).tolist()
    assert found == [nearest(x) for x in exact]
    assert rounded(torch.tensor([449.0, -1e30]), torch.tensor(1.0)).tolist() == [448.0, -448.0]


def test_kl_by_hand() -> None:
    before = torch.tensor([[0.5, 0.25, 0.25], [0.1, 0.8, 0.1]]).log()
    after = torch.tensor([[0.25, 0.5, 0.25], [0.1, 0.8, 0.1]]).log()
    found = compare(7, before, after, torch.tensor([1, 1]))
    assert found.kl == pytest.approx(0.5 * math.log(2) - 0.25 * math.log(2), abs=1e-6)
    assert (found.text, found.tokens, found.same_top) == (7, 2, 1)
    assert (found.right_before, found.right_after) == (1, 2)
    assert found.surprise == pytest.approx(-math.log(2), abs=1e-6)


def text(number: int, kl: float, tokens: int = 10) -> TextDistance:
    return TextDistance(number, tokens, kl, tokens, 0.0, 5, 5)


def test_bounds_are_by_text_and_not_by_passage() -> None:
    sums = [0.1, 0.3, 0.2, 0.6]
    found = distance([text(number, kl) for number, kl in enumerate(sums)]).kl_per_token
    mean = sum(sums) / 40
    # with texts equally long it is the mean of texts: standard deviation by the square root of their number
    error = math.sqrt(sum((kl / 10 - mean) ** 2 for kl in sums) / 3 / 4)
    assert found.value == pytest.approx(mean)
    assert found.upper - mean == pytest.approx(2.3534 * error, rel=1e-4)  # Student, 3 degrees of freedom
    halves = [text(number, kl / 2, 5) for number, kl in enumerate(sums) for _ in range(2)]
    assert distance(halves).kl_per_token.upper == pytest.approx(found.upper)
    assert distance([text(1, 0.1)]).kl_per_token.upper == math.inf
    with pytest.raises(ValueError, match="no position"):
        distance([])


def test_bounds_hold_as_often_as_they_say() -> None:
    generator, missed, runs = random.Random(5), 0, 400
    for _ in range(runs):
        # texts of unequal length, each with a level of its own: mean 1 per token
        sizes = [generator.randint(5, 40) for _ in range(60)]
        parts = [text(number, size * generator.gauss(1.0, 0.5), size) for number, size in enumerate(sizes)]
        missed += distance(parts).kl_per_token.upper < 1.0
    assert 0.01 < missed / runs < 0.09  # 5 % promised, and four standard errors of 400 runs


def by_trying_all(parts: list[Cost], budget: float) -> tuple[int, float]:
    return min(
        (
            sum(part.kept_bytes - part.rounded_bytes for part in kept),
            sum(p.kl_per_token for p in parts if p not in kept),
        )
        for count in range(len(parts) + 1)
        for kept in itertools.combinations(parts, count)
        if sum(part.kl_per_token for part in parts if part not in kept) <= budget
    )


def test_the_choice_is_the_cheapest_of_all() -> None:
    generator = random.Random(11)
    for _ in range(60):
        parts = [
            Cost(f"{number}", generator.random(), 0, generator.choice((10, 10, 30, 70)))
            for number in range(generator.randint(1, 8))
        ]
        budget = generator.random() * 2
        found = cheapest(parts, budget)
        size, kl = by_trying_all(parts, budget)
        assert found.extra_bytes == size
        assert found.kl_per_token == pytest.approx(kl)
    assert cheapest([], 0.0) == Choice((), 0.0, 0)
    with pytest.raises(ValueError, match="0 or more"):
        cheapest([], -1.0)


def test_many_parts_are_chosen_from_at_once() -> None:
    generator = random.Random(2)
    parts = [Cost(f"{n}", generator.random(), 0, generator.choice((3, 5, 8, 13))) for n in range(320)]
    found = cheapest(parts, 40.0)
    assert found.kl_per_token <= 40.0
    assert found.extra_bytes == sum(part.kept_bytes for part in parts if part.name in found.keep)


def test_several_texts_at_once_are_each_alone(tiny_model: Path) -> None:
    model = load_model(tiny_model, "float32")
    texts = [PROMPT, PROMPT[::-1], PROMPT[:1]]
    for together, ids in zip(logits_of_all(model, texts), texts, strict=True):
        torch.testing.assert_close(together, logits_of(model, ids), atol=1e-5, rtol=1e-5)
    assert list(batches(texts, 12)) == [[0], [1, 2]]
    assert list(batches([[1] * 20, [1]], 12)) == [[0], [1]]


def test_a_switched_model_is_the_model_rounded_and_comes_back(tiny_model: Path) -> None:
    model = SwitchedModel(tiny_model, Scheme("fp8"), "float32")
    plain = load_model(tiny_model, "float32")

    def now() -> torch.Tensor:
        return model.log_probabilities(PASSAGES)[0]

    before = now()
    torch.testing.assert_close(before, logits_of(plain, PROMPT)[:-1].log_softmax(-1), atol=1e-5, rtol=1e-5)
    for part in model.parts:
        model.round({part.name})
        assert not torch.equal(now(), before), part.name
        assert part.rounded_bytes < part.kept_bytes
    model.round(())
    assert torch.equal(now(), before)


def test_int8_keys_and_values_keep_a_scale_for_each() -> None:
    heads = torch.randn(3, 2, 2, 8, generator=torch.Generator().manual_seed(1))
    heads[:, 1] *= 100
    error = (int8_keys_and_values(heads) - heads).abs().amax(3)
    # a scale is rounded to bfloat16
    assert bool((error <= heads.abs().amax(3) / 127 / 2 * 1.004).all())


def test_a_scheme_rounds_what_it_says_and_counts_scales() -> None:
    assert Scheme("int8").rounds("head")
    assert not Scheme("fp8").rounds("head")
    assert Scheme("fp8", also=("layers.*.kv",)).rounds("layers.3.kv")
    assert not Scheme("fp8", keep=("layers.0.*",)).rounds("layers.0.qkv")
    assert not Scheme("int8").rounds("embedding")
    assert Rounder(Scheme("int8")).bytes((8, 16)) == 8 * 16 + 4 * 8
    assert Rounder(Scheme("fp8", weights="tensor")).bytes((8, 16)) == 8 * 16 + 4


def test_the_report_puts_the_spoiled_part_first_and_keeps_it(tmp_path: Path) -> None:
    weights = random_weights(CONFIG)
    # one huge weight takes the whole range of a per-tensor scale: the others fall below the smallest steps
    weights["model.layers.1.mlp.up_proj.weight"][0, 0] = 2e5
    weights["model.layers.1.mlp.down_proj.weight"][:, 0] = 0
    folder = write_model(tmp_path, CONFIG, weights)
    told: list[str] = []
    scheme = Scheme("fp8", "tensor", "none")
    budget = measure(folder, PASSAGES, scheme, 1e6).rounded.kl_per_token.upper / 4
    report = measure(folder, PASSAGES, scheme, budget, progress=told.append)
    assert report.parts[0].part.name == "layers.1.gate_up"
    assert {one.part.kind for one in report.parts} == {"qkv", "output", "gate_up", "down", "kv", "embedding", "head"}
    assert len(report.parts) == 12 <= len(told)
    assert "layers.1.gate_up" in report.keep
    assert report.kept.kl_per_token.upper <= budget < report.rounded.kl_per_token.upper
    assert report.extra_bytes < report.plain_bytes - report.rounded_bytes
    by_channel = measure(folder, PASSAGES, Scheme("fp8", "channel", "none"), 1e6)
    assert by_channel.keep == ()
    assert by_channel.rounded.kl_per_token.value < report.rounded.kl_per_token.value


def test_what_is_kept_is_not_rounded(tiny_model: Path) -> None:
    report = measure(tiny_model, PASSAGES, Scheme("int8", keep=("*",)), 0.0)
    assert report.rounded.kl_per_token == Estimate(0.0, 0.0, 0.0)
    assert report.rounded.same_top.value == 1.0
    report = measure(tiny_model, PASSAGES, Scheme("int8"), 0.0)
    assert len(report.keep) == 9, "no budget keeps everything"
    assert report.kept.kl_per_token.value == 0.0
    assert report.extra_bytes == report.plain_bytes - report.rounded_bytes


def shown(kl: Estimate, right: Estimate) -> Distance:
    return Distance(kl, Estimate(1.0, 1.0, 1.0), Estimate(1.0, 1.0, 1.0), right, 10, 5)


@pytest.mark.parametrize(
    ("kl", "right", "expected"),
    [
        ((0.01, 0.005, 0.015), (0.0, -0.01, 0.01), (Decision.PASS, Decision.PASS)),
        ((0.01, 0.005, 0.03), (0.0, -0.03, 0.01), (Decision.INCONCLUSIVE, Decision.INCONCLUSIVE)),
        ((0.05, 0.03, 0.07), (-0.1, -0.2, -0.05), (Decision.FAIL, Decision.FAIL)),
        ((0.0, -math.inf, math.inf), (0.0, -math.inf, math.inf), (Decision.INCONCLUSIVE, Decision.INCONCLUSIVE)),
    ],
)
def test_a_distance_passes_on_proof_only(
    kl: tuple[float, ...], right: tuple[float, ...], expected: tuple[Decision, ...]
) -> None:
    checks = judge_distance(shown(Estimate(*kl), Estimate(*right)), 0.02, 0.02)
    assert tuple(check.decision for check in checks) == expected


def test_one_failure_fails_and_one_doubt_is_a_doubt() -> None:
    def checks(*decisions: str) -> list[Check]:
        return [Check(str(number), Decision(one), "") for number, one in enumerate(decisions)]

    assert decide(checks("pass", "pass"), None) == (Decision.PASS, "all of 2 passed")
    assert decide(checks("pass", "inconclusive", "fail"), None) == (Decision.FAIL, "1 of 3 failed: 2")
    nothing = GateVerdict(decision=Decision.PASS, reason="", slices=())
    assert decide(checks("pass", "inconclusive"), nothing)[0] is Decision.INCONCLUSIVE


def test_parts_have_hugging_face_names() -> None:
    assert modules_of("head") == ("lm_head",)
    assert modules_of("layers.3.gate_up") == ("model.layers.3.mlp.gate_proj", "model.layers.3.mlp.up_proj")
    assert modules_of("layers.3.kv") == ()


# int8: 10 CPU seconds compile kernels that no other test of the gate needs
@pytest.mark.parametrize("name", [pytest.param("int8", marks=pytest.mark.nightly), "fp8"])
def test_a_scheme_is_what_the_engine_makes_of_the_same_setting(name: Literal["int8", "fp8"]) -> None:
    items = [find("repeat").item(seed, Split.HELD_OUT) for seed in range(4)]
    by_setting = Asked(CHAT, config=EngineConfig(quantization=name))
    assert Asked(CHAT, scheme=Scheme(name)).answers(items) == by_setting.answers(items)


def test_a_part_that_is_kept_and_rounded_keys_and_values_are_served_too(tiny_model: Path) -> None:
    ids = PROMPT * 3
    found = []
    for scheme in (Scheme("int8"), Scheme("int8", keep=("*",)), Scheme("int8", keep=("layers.*", "head"), also=("*",))):
        rounded = RoundedLinears(scheme)
        model = load_model(tiny_model, rounded.dtype, rounded.of)
        rounded.finish(model)
        found.append(logits_of(model, ids))
    layers = PlainLinears(torch.bfloat16, native=False)
    layers.wide = False
    plain = logits_of(load_model(tiny_model, "bfloat16", lambda _: layers), ids)
    assert not torch.equal(found[0], plain)
    assert torch.equal(found[1], plain)
    assert not torch.equal(found[2], plain)  # the embedding is left


@pytest.fixture
def gate(tiny_model: Path, tmp_path: Path) -> tuple[str, ...]:
    """The command with a model and twelve texts."""
    texts = tmp_path / "t.jsonl"
    texts.write_text("".join(json.dumps({"text": f"the code of word {n} is {n * 7}"}) + "\n" for n in range(12)))
    return "quantization", "gate", "--model", str(tiny_model), "--text", str(texts)


@pytest.mark.parametrize(("budget", "code"), [("1000", 0), ("0", 1)])
def test_the_gates_exit_code_is_its_verdict(gate: tuple[str, ...], tmp_path: Path, budget: str, code: int) -> None:
    export, output = tmp_path / "keep.json", tmp_path / "verdict.json"
    command = [*gate, "--scheme", "fp8", "--slices", "none", "--margin", "0.9", "--kl-budget", budget]
    command += ["--keep", "layers.1.down", "--also", "layers.*.kv"]
    done = CliRunner().invoke(cli, [*command, "--export", str(export), "--output", str(output)])
    assert done.exit_code == code, done.output
    assert done.output.splitlines()[-1].startswith("pass" if code == 0 else "fail")
    kept = msgspec.json.decode(export.read_bytes(), type=KeepList)
    assert kept.format == FORMAT
    assert "layers.1.down" in kept.parts
    assert "model.layers.1.mlp.down_proj" in kept.modules
    assert kept.keys_and_values == ((0, 1) if code else ())
    assert json.loads(output.read_text())["report"]["scheme"]["name"] == "fp8"


def test_the_gate_keeps_what_a_list_says_that_was_measured_alike(gate: tuple[str, ...], tmp_path: Path) -> None:
    export, output = tmp_path / "keep.json", tmp_path / "gate.json"
    command = [*gate, "--slices", "none", "--kl-budget", "1e-7"]
    CliRunner().invoke(cli, [*command, "--export", str(export)])
    kept = msgspec.json.decode(export.read_bytes(), type=KeepList).parts
    assert kept
    done = CliRunner().invoke(cli, [*command, "--keep-list", str(export), "--output", str(output)])
    assert json.loads(output.read_text())["report"]["scheme"]["keep"] == list(kept)
    assert f"part 1 of {CONFIG['num_hidden_layers'] * 5 + 2}" in done.stderr
    other = CliRunner().invoke(cli, [*command, "--keep-list", str(export), "--weights", "tensor"])
    assert other.exit_code == 2
    assert "--weights channel" in other.output


def test_the_gate_asks_both_models_until_it_knows(gate: tuple[str, ...]) -> None:
    command = [*gate, "--scheme", "int8", "--slices", "facts", "--items", "8", "--margin", "0.5", "--kl-budget", "1000"]
    done = CliRunner().invoke(cli, [*command, "--json"])
    found = json.loads(done.stdout)
    (facts,) = found["slices"]["slices"]
    assert facts["n"] == 8
    assert done.exit_code == {"pass": 0, "fail": 1, "inconclusive": 2}[found["decision"]]


def test_what_cannot_be_asked_is_said(gate: tuple[str, ...]) -> None:
    done = CliRunner().invoke(cli, [*gate, "--slices", "nothing"])
    assert done.exit_code == 2
    assert "nothing: no such slice" in done.output
