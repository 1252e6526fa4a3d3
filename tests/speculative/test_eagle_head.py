"""The EAGLE head: trained as it is served, and exported so that other engines read it."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from contracts.errors import ConfigError
from speculative.eagle.checkpoint import load, save
from speculative.eagle.config import HeadConfig, default_layers
from speculative.eagle.head import EagleHead
from speculative.eagle.loss import outputs_by_step, unroll
from tests.speculative.adam import Adam

CONFIG = HeadConfig(
    vocab_size=40,
    draft_vocab_size=24,
    hidden_size=16,
    intermediate_size=32,
    num_attention_heads=4,
    num_key_value_heads=2,
    head_dim=8,
    rms_norm_eps=1e-5,
    rope_theta=10000.0,
    max_position_embeddings=256,
    eagle_aux_hidden_state_layer_ids=(1, 3, 4),
)


def made(seed: int = 0) -> EagleHead:
    torch.manual_seed(seed)
    head = EagleHead(CONFIG)
    head.use_vocabulary(torch.randperm(CONFIG.vocab_size)[: CONFIG.draft_vocab_size])
    return head


def inputs(count: int = 14) -> tuple[Tensor, Tensor, Tensor]:
    """Token ids, the target's features, its embedding table."""
    generator = torch.Generator().manual_seed(3)
    ids = torch.randint(0, CONFIG.vocab_size, (count,), generator=generator)
    states = torch.randn(count, 3 * CONFIG.hidden_size, generator=generator)
    return ids, states, torch.randn(CONFIG.vocab_size, CONFIG.hidden_size, generator=generator)


@pytest.mark.parametrize("piece", [1, 3, 100])
def test_unrolled_training_is_what_serving_computes(piece: int) -> None:
    head, (ids, states, embedding) = made(), inputs()
    steps = 4
    unrolled = outputs_by_step(head, ids, states, embedding, steps)
    for last in (0, 1, 2, 3, len(unrolled[0]) - 1):
        past, outputs = None, torch.zeros(0)
        for start in range(0, last + 1, piece):  # the prompt may come in chunks
            rows = torch.arange(start, min(start + piece, last + 1))
            outputs, past = head.extend(embedding[ids[rows + 1]], head.features(states[rows]), rows, past)
        output = outputs[-1:]
        for step in range(steps):
            if step:
                token = ids[last + 1 + step : last + 2 + step]  # teacher forcing, as in training
                output, past = head.extend(embedding[token], output, torch.tensor([last + step]), past)
            torch.testing.assert_close(unrolled[step][last], output[0], rtol=1e-4, atol=1e-5)


def test_drafts_are_the_likeliest_chain_and_leave_the_past_alone() -> None:
    head, (ids, states, embedding) = made(), inputs()
    rows = torch.arange(10)
    outputs, past = head.extend(embedding[ids[rows + 1]], head.features(states[rows]), rows, None)
    drafts = head.draft(outputs[-1], past, 9, 4, embedding)
    assert len(drafts) == 4
    assert head.t2d[torch.tensor(drafts)].all()
    assert past.keys.shape[0] == 10
    assert head.draft(outputs[-1], past, 9, 2, embedding) == drafts[:2]
    first = head.target_ids(head.logits(outputs[-1:]).argmax(-1))
    assert drafts[0] == int(first)


def test_draft_ids_and_target_ids_agree() -> None:
    head = made()
    ids = head.target_ids(torch.arange(CONFIG.draft_vocab_size))
    assert head.t2d.nonzero()[:, 0].tolist() == ids.tolist() == sorted(ids.tolist())


def test_training_lowers_the_loss_and_learns_to_guess() -> None:
    head, (_, states, embedding) = made(), inputs(30)
    allowed = head.target_ids(torch.arange(CONFIG.draft_vocab_size))
    ids = allowed[(torch.arange(30) * 5) % CONFIG.draft_vocab_size]  # each token determines the next one
    scores = torch.zeros(30, CONFIG.vocab_size)
    scores[torch.arange(29), ids[1:]] = 8.0
    optimiser = Adam(head.parameters(), lr=1e-2)
    first = unroll(head, ids, states, scores, embedding, 3)
    for _ in range(60):
        optimiser.zero_grad()
        torch.autograd.backward(unroll(head, ids, states, scores, embedding, 3).loss)
        optimiser.step()
    last = unroll(head, ids, states, scores, embedding, 3)
    assert last.loss.item() < 0.5 * first.loss.item()
    assert min(last.accuracy) > 0.9 > max(first.accuracy)


def test_too_short_a_sequence_is_an_error() -> None:
    head, (ids, states, embedding) = made(), inputs(4)
    with pytest.raises(ValueError, match="too few"):
        unroll(head, ids, states, torch.zeros(4, CONFIG.vocab_size), embedding, 3)


def test_an_exported_head_comes_back_the_same(tmp_path: Path) -> None:
    head, (ids, states, embedding) = made(), inputs()
    save(head, tmp_path, torch.float32)
    again = load(tmp_path)
    rows = torch.arange(10)
    expected, _ = head.extend(embedding[ids[rows + 1]], head.features(states[rows]), rows, None)
    got, _ = again.extend(embedding[ids[rows + 1]], again.features(states[rows]), rows, None)
    assert torch.equal(expected, got)
    assert torch.equal(head.d2t, again.d2t)
    assert again.config == CONFIG


def whole() -> EagleHead:
    """One that guesses among all of the target's tokens."""
    torch.manual_seed(0)
    head = EagleHead(msgspec.structs.replace(CONFIG, draft_vocab_size=CONFIG.vocab_size))
    head.use_vocabulary(torch.randperm(CONFIG.vocab_size))
    return head


def test_a_head_of_the_whole_vocabulary_is_written_without_a_map_of_it(tmp_path: Path) -> None:
    """vLLM has no place for one there, and ends."""
    head = whole()
    save(head, tmp_path, torch.float32)
    written = load_file(str(tmp_path / "model.safetensors"))
    assert {"d2t", "t2d"}.isdisjoint(written)
    again = load(tmp_path)
    assert {name: tensor.tolist() for name, tensor in again.state_dict().items()} == {
        name: tensor.tolist() for name, tensor in head.state_dict().items()
    }
    save_file({**written, "d2t": head.d2t, "t2d": head.t2d}, str(tmp_path / "model.safetensors"))
    assert torch.equal(load(tmp_path).d2t, head.d2t)  # as heads were written before


@pytest.mark.parametrize("name", ["d2t", "t2d"])
def test_a_head_of_fewer_tokens_needs_its_map(tmp_path: Path, name: str) -> None:
    save(made(), tmp_path)
    tensors = load_file(str(tmp_path / "model.safetensors"))
    del tensors[name]
    save_file(tensors, str(tmp_path / "model.safetensors"))
    with pytest.raises(ConfigError, match=f"{name} is missing"):
        load(tmp_path)


def test_the_layout_is_the_one_other_engines_read(tmp_path: Path) -> None:
    save(made(), tmp_path)
    tensors = load_file(str(tmp_path / "model.safetensors"))
    h, vocab, draft = CONFIG.hidden_size, CONFIG.vocab_size, CONFIG.draft_vocab_size
    assert {name: tuple(tensor.shape) for name, tensor in tensors.items()} == {
        "fc.weight": (h, 3 * h),
        "midlayer.hidden_norm.weight": (h,),
        "midlayer.input_layernorm.weight": (h,),
        "midlayer.post_attention_layernorm.weight": (h,),
        "midlayer.self_attn.q_proj.weight": (32, 2 * h),
        "midlayer.self_attn.k_proj.weight": (16, 2 * h),
        "midlayer.self_attn.v_proj.weight": (16, 2 * h),
        "midlayer.self_attn.o_proj.weight": (h, 32),
        "midlayer.mlp.gate_proj.weight": (32, h),
        "midlayer.mlp.up_proj.weight": (32, h),
        "midlayer.mlp.down_proj.weight": (h, 32),
        "norm.weight": (h,),
        "lm_head.weight": (draft, h),
        "d2t": (draft,),
        "t2d": (vocab,),
    }
    assert tensors["fc.weight"].dtype is torch.bfloat16
    assert (tensors["d2t"].dtype, tensors["t2d"].dtype) == (torch.int64, torch.bool)
    config = json.loads((tmp_path / "config.json").read_text())
    assert config["architectures"] == ["LlamaForCausalLMEagle3"]
    assert config["draft_vocab_size"] == draft
    assert config["num_hidden_layers"] == 1
    # outputs of layers for SGLang, the same states as inputs of the next ones for vLLM
    assert config["eagle_config"] == {"eagle_aux_hidden_state_layer_ids": [1, 3, 4]}
    assert config["eagle_aux_hidden_state_layer_ids"] == [2, 4, 5]
    assert load(tmp_path).config.eagle_aux_hidden_state_layer_ids == (1, 3, 4)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda tensors: tensors.pop("fc.weight"), "fc.weight is missing"),
        (lambda tensors: tensors.update(extra=torch.zeros(1)), "unknown tensors: extra"),
        (lambda tensors: tensors.update({"norm.weight": torch.zeros(3)}), r"norm.weight is \(3,\), not \(16,\)"),
    ],
)
def test_a_broken_checkpoint_is_refused_by_name(tmp_path: Path, change: object, message: str) -> None:
    save(made(), tmp_path)
    tensors = load_file(str(tmp_path / "model.safetensors"))
    assert callable(change)
    change(tensors)
    save_file(tensors, str(tmp_path / "model.safetensors"))
    with pytest.raises(ConfigError, match=message):
        load(tmp_path)


def test_weights_that_are_missing_or_cut_are_refused_by_name(tmp_path: Path) -> None:
    save(made(), tmp_path)
    weights = tmp_path / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1])
    with pytest.raises(ConfigError, match=r"model\.safetensors: not a whole safetensors file"):
        load(tmp_path)
    weights.unlink()
    with pytest.raises(ConfigError, match=r"model\.safetensors: cannot be read"):
        load(tmp_path)


def test_a_broken_config_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"config\.json: cannot be read"):
        load(tmp_path)
    save(made(), tmp_path)
    path = tmp_path / "config.json"
    config = json.loads(path.read_text())
    path.write_bytes(msgspec.json.encode({**config, "architectures": ["LlamaForCausalLM"]}))
    with pytest.raises(ConfigError, match="architectures"):
        load(tmp_path)
    path.write_bytes(msgspec.json.encode({**config, "hidden_size": "x"}))
    with pytest.raises(ConfigError, match="hidden_size"):
        load(tmp_path)
    path.write_bytes(msgspec.json.encode({**config, "eagle_config": None}))
    with pytest.raises(ConfigError, match="eagle_aux_hidden_state_layer_ids"):
        load(tmp_path)
    path.write_bytes(b"[]")
    with pytest.raises(ConfigError, match=r"config\.json: Expected `object`"):
        load(tmp_path)


def test_layers_are_three_different_ones_in_order() -> None:
    assert default_layers(32) == (1, 15, 28)
    assert default_layers(6) == (0, 2, 4)
    for layers in range(4, 40):
        chosen = default_layers(layers)
        assert sorted(set(chosen)) == list(chosen)
        assert chosen[-1] < layers - 1  # SGLang cannot hand out the last layer's output
    with pytest.raises(ValueError, match="3 layers"):
        default_layers(3)
