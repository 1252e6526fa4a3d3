"""An EAGLE head in the engine: any head leaves every text as it is, and a trained one saves steps."""

from __future__ import annotations

import random
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Literal

import msgspec
import pytest
import torch
from torch import Tensor

from contracts.errors import ConfigError
from engines.embedded import engine as engine_module
from engines.embedded import sampler, sequence, tree_checker
from engines.embedded.build import build_engine
from engines.embedded.config import EngineConfig, KVConfig
from engines.embedded.draft_sources import make_source
from engines.embedded.engine import Engine
from engines.embedded.kv.store import KVStore
from engines.embedded.models.llama import Llama
from engines.embedded.models.registry import load_model
from engines.embedded.quantization.linears import linears_of
from engines.embedded.request import Request
from engines.layers.attention import AttentionPlan, Chunk
from engines.tokenizer.tokenizer import Tokenizer
from speculative.config import SpeculationConfig
from speculative.eagle.checkpoint import save
from speculative.eagle.config import HeadConfig, default_layers
from speculative.eagle.drafts import EagleDrafts
from speculative.eagle.head import EagleHead
from speculative.eagle.loss import unroll
from speculative.verify import Accepted
from tests.engines.embedded.naive_cache import check_tree
from tests.engines.embedded.tiny import CONFIG, SHIPPED, finish, make_engine, random_weights, request, write_model
from tests.speculative.adam import Adam

Shape = Literal["chain", "tree"]
TARGET = {**CONFIG, "num_hidden_layers": 4}
HEAD = HeadConfig(
    vocab_size=CONFIG["vocab_size"],
    draft_vocab_size=512,
    hidden_size=CONFIG["hidden_size"],
    intermediate_size=64,
    num_attention_heads=4,
    num_key_value_heads=2,
    head_dim=8,
    rms_norm_eps=1e-5,
    rope_theta=10000.0,
    max_position_embeddings=512,
    eagle_aux_hidden_state_layer_ids=default_layers(4),
)


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four layers, so that three of them differ."""
    return write_model(tmp_path_factory.mktemp("models") / "target", TARGET, random_weights(TARGET))


def always(head: Path, shape: Shape = "chain") -> SpeculationConfig:
    most = 3 if shape == "chain" else 7
    return SpeculationConfig(method="eagle", head=str(head), governed=False, max_drafts=most, shape=shape, tree_depth=3)


every_shape = pytest.mark.parametrize("shape", ["chain", "tree"])


@pytest.fixture(scope="module")
def random_head(tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch.manual_seed(1)
    folder = tmp_path_factory.mktemp("heads") / "random"
    save(EagleHead(HEAD), folder, torch.float32)
    return folder


def ids(engine: Engine, *requests: Request) -> dict[tuple[str, int], list[int]]:
    found = finish(engine, *requests)
    return {key: [entry.id for delta in deltas for entry in delta.logprobs] for key, deltas in found.items()}


TEMPERATURE = 0.3
"""Where laws are compared: at 1 a trained head's guess is taken once in 200 times, and a run may see none."""

PROMPTS = [[20 + (at * step) % 200 for at in range(24)] for step in range(1, 5)]


def what_the_target_says(model: Llama, tokens: list[int]) -> tuple[Tensor, Tensor]:
    """The wanted layers' outputs and the logits after every token, computed whole."""
    count = len(tokens)
    config = model.config
    pages = torch.zeros(config.num_hidden_layers, 1, count, 2, config.num_key_value_heads, config.head_dim)
    plan = AttentionPlan(torch.arange(count), (), (Chunk(0, count, None, None),))
    layers = HEAD.eagle_aux_hidden_state_layer_ids
    hidden, outputs = model.hidden_and_outputs(torch.tensor(tokens), torch.arange(count), pages, plan, layers)
    return torch.cat(outputs, -1), model.logits(hidden)


@pytest.fixture(scope="module")
def trained_head(target: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Trained on the target's own greedy continuations of the prompts, through the class that serves."""
    texts = ids(make_engine(target), *[request(f"{at}", p, max_tokens=40, logprobs=0) for at, p in enumerate(PROMPTS)])
    model = load_model(target, "float32")
    texts_ids = [PROMPTS[int(rid)] + found for (rid, _), found in texts.items()]
    examples = [(torch.tensor(tokens), *what_the_target_says(model, tokens)) for tokens in texts_ids]
    torch.manual_seed(2)
    head = EagleHead(HEAD)
    frequent = torch.bincount(torch.cat([scores.argmax(-1) for _, _, scores in examples]), minlength=2048)
    head.use_vocabulary(frequent.topk(HEAD.draft_vocab_size).indices)
    optimiser = Adam(head.parameters(), lr=1e-2)
    for _ in range(60):
        optimiser.zero_grad()
        losses = [unroll(head, *example, model.embedding, 3).loss for example in examples]
        torch.autograd.backward(torch.stack(losses).mean())
        optimiser.step()
    folder = tmp_path_factory.mktemp("heads") / "trained"
    save(head, folder, torch.float32)
    return folder


@every_shape
def test_a_trained_head_saves_steps_and_changes_nothing(target: Path, trained_head: Path, shape: Shape) -> None:
    wanted = [request(f"{at}", prompt, max_tokens=40, logprobs=0) for at, prompt in enumerate(PROMPTS)]
    drafting, plain = make_engine(target, speculation=always(trained_head, shape)), make_engine(target)
    assert ids(drafting, *wanted) == ids(plain, *wanted)
    assert drafting.stats.accept_length > 2
    assert drafting.stats.steps < 0.7 * plain.stats.steps


@every_shape
def test_a_random_head_guesses_wrong_and_changes_nothing(target: Path, random_head: Path, shape: Shape) -> None:
    wanted = [request(f"{at}", prompt, max_tokens=20, logprobs=0) for at, prompt in enumerate(PROMPTS)]
    drafting = make_engine(target, speculation=always(random_head, shape))
    assert ids(drafting, *wanted) == ids(make_engine(target), *wanted)
    assert drafting.stats.drafts > 0
    assert drafting.stats.accept_rate < 0.5


@every_shape
def test_any_mixture_is_the_same(target: Path, trained_head: Path, shape: Shape) -> None:
    # sums differ by their rounding with what is computed together: of the seeds one is taken with which no coin falls
    # on the border between two tokens
    source = random.Random(8)
    wanted = [
        request(
            f"{at}",
            source.choice(PROMPTS)[: source.randrange(1, 25)],
            max_tokens=source.randrange(1, 40),
            choices=source.choice((1, 1, 3)),
            temperature=source.choice((0.0, 0.0, 0.7)),
            seed=at,
            logprobs=0,
            frequency_penalty=source.choice((0.0, 0.0, 0.5)),
            stop=source.choice(((), (), (), ("e",))),
            speculate=source.random() < 0.8,
        )
        for at in range(24)
    ]
    # chunked, found in the cache, forked, preempted
    settings: dict[str, Any] = {"pages": 40, "max_batch_tokens": 16, "output_reserve": 0.0}
    drafting = make_engine(target, speculation=always(trained_head, shape), **settings)
    assert ids(drafting, *wanted) == ids(make_engine(target, **settings), *wanted)
    assert drafting.scheduler.preemptions > 0
    assert drafting.stats.cached_tokens > 0
    assert 0 < drafting.stats.accepted_drafts < drafting.stats.drafts
    assert drafting.pages.pinned == 0
    check_tree(drafting.cache)


@pytest.mark.parametrize(("kv_dtype", "shape"), [("fp8", "chain"), ("int8", "tree")])
def test_a_head_changes_nothing_where_keys_and_values_have_8_bits(
    target: Path, trained_head: Path, shape: Shape, kv_dtype: Literal["fp8", "int8"]
) -> None:
    wanted = [request(f"{at}", prompt, max_tokens=40, logprobs=0) for at, prompt in enumerate(PROMPTS)]
    drafting = make_engine(target, speculation=always(trained_head, shape), kv_dtype=kv_dtype)
    assert ids(drafting, *wanted) == ids(make_engine(target, kv_dtype=kv_dtype), *wanted)
    assert drafting.stats.accepted_drafts > 0


def test_what_a_branch_leaves_in_the_cache_is_what_the_text_would_leave(target: Path, trained_head: Path) -> None:
    first = request("a", PROMPTS[1], max_tokens=30, logprobs=0)
    drafting = make_engine(target, speculation=always(trained_head, "tree"))
    text = [*PROMPTS[1], *ids(drafting, first)["a", 0]]
    assert drafting.stats.accepted_drafts > 0
    again = request("b", [*text, 40, 41], max_tokens=20, logprobs=0, speculate=False)
    assert ids(drafting, again) == ids(make_engine(target), again)
    assert drafting.stats.cached_tokens >= len(text) - 4, "the answer was found"
    found, fresh = (
        [entry.logprob for delta in finish(engine, again)["b", 0] for entry in delta.logprobs]
        for engine in (drafting, make_engine(target))
    )
    assert found == pytest.approx(fresh, abs=1e-4)


def frequencies(engine: Engine, rounds: int, *, seeded: bool = False) -> dict[tuple[int, ...], int]:
    """How often each run of three tokens was sampled after the first prompt. seeded: guesses are not drawn."""
    counts: dict[tuple[int, ...], int] = {}
    sampling: dict[str, Any] = {"max_tokens": 3, "temperature": TEMPERATURE, "top_k": 3, "logprobs": 0}
    for number in range(rounds):
        seeds = [50 * number + at if seeded else None for at in range(50)]
        wanted = [request(f"{number}.{at}", PROMPTS[0], seed=seed, **sampling) for at, seed in enumerate(seeds)]
        for found in ids(engine, *wanted).values():
            counts[tuple(found)] = counts.get(tuple(found), 0) + 1
    return counts


def law_of_three(model: Llama) -> dict[tuple[int, ...], float]:
    """The exact law of those runs, by the model alone."""
    law: dict[tuple[int, ...], float] = {(): 1.0}
    for _ in range(3):
        longer: dict[tuple[int, ...], float] = {}
        for run, chance in law.items():
            scores = what_the_target_says(model, [*PROMPTS[0], *run])[1][-1]
            top = torch.softmax(scores / TEMPERATURE, -1).topk(3)
            shares = top.values / top.values.sum()
            for id_, share in zip(top.indices.tolist(), shares.tolist(), strict=True):
                longer[*run, id_] = chance * share
        law = longer
    return law


def sigmas(counts: dict[tuple[int, ...], int], law: dict[tuple[int, ...], float]) -> float:
    """Chi-square's distance from its mean in standard deviations; runs that cannot be count as infinitely far."""
    if counts.keys() - law.keys():
        return float("inf")
    total = sum(counts.values())
    likely = [run for run, chance in law.items() if chance * total >= 5]
    rest = total - sum(counts.get(run, 0) for run in likely)
    cells = [(counts.get(run, 0), law[run] * total) for run in likely]
    cells.append((rest, total * (1 - sum(law[run] for run in likely)) + 1e-9))
    statistic = sum((found - wanted) ** 2 / wanted for found, wanted in cells if wanted > 1)
    freedom = max(len(likely), 2)
    return float((statistic - freedom) / (2 * freedom) ** 0.5)


def accept_everything(target: Tensor, draft: Tensor, draft_ids: Tensor, coins: Tensor) -> Accepted:
    return Accepted(len(draft_ids), int(torch.multinomial(target[-1], 1)))


def take_any_branch(drafts: list[int], parents: list[int], picked: list[int]) -> list[int]:
    return [node for node, parent in enumerate(parents) if parent == node - 1]


@every_shape
def test_guesses_leave_the_distribution_and_accepting_everything_does_not(
    target: Path, trained_head: Path, monkeypatch: pytest.MonkeyPatch, shape: Shape
) -> None:
    """Those of a chain are drawn; those of a tree are the likeliest, and the sampled token follows a branch or none."""
    seeded, seeds = shape == "tree", random.Random(3)
    # by the system's own chance the counts of one run in ten thousand would be that far from the law
    chance = SimpleNamespace(Random=lambda seed=None: random.Random(seeds.random() if seed is None else seed))
    monkeypatch.setattr(sequence, "random", chance)
    torch.manual_seed(3)
    law = law_of_three(load_model(target, "float32"))
    engine = make_engine(target, speculation=always(trained_head, shape))
    assert sigmas(frequencies(engine, 4, seeded=seeded), law) < 7
    assert 0 < engine.stats.accepted_drafts < engine.stats.drafts
    monkeypatch.setattr(sampler, "verify", accept_everything)
    monkeypatch.setattr(tree_checker, "accepted_path", take_any_branch)
    monkeypatch.setattr(engine_module, "accepted_prefix", lambda drafts, picked: len(drafts))
    greedy = make_engine(target, speculation=always(trained_head, shape))
    assert sigmas(frequencies(greedy, 4, seeded=seeded), law) > 7


def test_a_head_in_the_models_folder_is_found_and_its_memory_counted(target: Path, trained_head: Path) -> None:
    speculation = SpeculationConfig(method="eagle", governed=False)
    shutil.copytree(trained_head, target / "draft")
    try:
        config = EngineConfig(model=str(target), speculation=speculation, kv=KVConfig(budget_bytes=1 << 20), threads=1)
        engine = build_engine(config, 100, Tokenizer.load(target))
        plain = build_engine(msgspec.structs.replace(config, speculation=SpeculationConfig()), 100, engine_tokenizer())
    finally:
        shutil.rmtree(target / "draft")
    # four layers and the head's one
    assert engine.store.total_pages == plain.store.total_pages * 4 // 5
    assert engine._drafter.layers == HEAD.eagle_aux_hidden_state_layer_ids


def engine_tokenizer() -> Tokenizer:
    return Tokenizer.load(SHIPPED / "slipstream-chat")


def test_guesses_do_not_depend_on_how_the_states_came(random_head: Path, target: Path) -> None:
    model = load_model(target, "float32")
    states, _ = what_the_target_says(model, PROMPTS[0])
    config = always(random_head)

    def fresh() -> EagleDrafts:
        source = make_source(config, model)
        return EagleDrafts(source._head, source._embedding)  # type: ignore[union-attr]

    whole, pieces = fresh(), fresh()
    whole.learn(0, states[:20])
    expected = whole.propose(PROMPTS[0][:21], 4)
    for start, stop in ((0, 7), (7, 8), (8, 20)):
        pieces.learn(start, states[start:stop])
        if stop < 20:
            pieces.propose(PROMPTS[0][: stop + 1], 2)
    assert pieces.fork().propose(PROMPTS[0][:21], 4) == expected
    assert pieces.propose(PROMPTS[0][:21], 4) == expected
    # started elsewhere: what it knew before is void
    pieces.learn(4, states[4:20])
    late = fresh()
    late.learn(4, states[4:20])
    assert pieces.propose(PROMPTS[0][:21], 4) == late.propose(PROMPTS[0][:21], 4)
    assert late.propose(PROMPTS[0][:23], 4) == []  # the token before the last was never told


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"vocab_size": 4096}, "vocab_size 4096"),
        ({"hidden_size": 64}, "hidden_size 64"),
        ({"eagle_aux_hidden_state_layer_ids": (1, 2, 4)}, "layers"),
    ],
)
def test_a_head_for_another_model_stops_the_start(
    target: Path, tmp_path: Path, change: dict[str, Any], message: str
) -> None:
    save(EagleHead(msgspec.structs.replace(HEAD, **change)), tmp_path)
    with pytest.raises(ConfigError, match=rf"speculation\.head.*{message}"):
        make_source(always(tmp_path), load_model(target, "float32"))


def test_branches_are_kept_off_our_own_kernels() -> None:
    """Which lay pages out in an order that PyTorch's operations do not know."""
    branching = EngineConfig(
        model=str(SHIPPED / "slipstream-chat"), threads=1, speculation=SpeculationConfig(method="eagle", shape="tree")
    )
    own = load_model(Path(branching.model), "bfloat16", lambda dtype: linears_of(EngineConfig(), dtype))
    if own.native is None:
        pytest.skip("none can be compiled here")
    with pytest.raises(ConfigError, match=r"speculation\.shape.*kernels = torch"):
        Engine(own, KVStore(own.config, KVConfig(), own.dtype, 64), branching, engine_tokenizer().text_stream)
    assert build_engine(branching, 64, engine_tokenizer())._runner._model.native is None


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (SpeculationConfig(method="ngram", shape="tree"), r"speculation\.shape: tree needs method eagle"),
        (SpeculationConfig(method="eagle"), r"speculation\.head: method eagle needs"),
    ],
)
def test_settings_that_no_head_can_follow_stop_the_start(target: Path, config: SpeculationConfig, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        make_source(config, load_model(target, "float32"))
