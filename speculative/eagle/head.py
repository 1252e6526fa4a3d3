"""The EAGLE-3 draft head: one class that is trained, exported and served (Li et al. 2025, arXiv 2503.01840).

At index t it takes the target's hidden states after token t and the embedding of token t+1, and predicts token t+2. For
further drafts, its own output replaces the hidden states. It uses the target's embeddings and has none of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from speculative.draws import Draws
from speculative.eagle.config import HeadConfig


class KeysValues(NamedTuple):
    """Keys and values of consecutive indices, each (indices, kv_heads, head_dim); keys are rotated."""

    keys: Tensor
    values: Tensor


class EagleHead(nn.Module):
    """The head. Its parameters have the names that the checkpoints of SGLang, TensorRT-LLM and vLLM use."""

    def __init__(self, config: HeadConfig) -> None:
        super().__init__()
        self.config = config
        hidden = config.hidden_size
        self.fc = nn.Linear(3 * hidden, hidden, bias=False)
        self.midlayer = _Layer(config)
        self.norm = nn.RMSNorm(hidden, eps=config.rms_norm_eps)
        self.lm_head = nn.Linear(hidden, config.draft_vocab_size, bias=False)
        # target id = draft id + d2t[draft id]; t2d masks the target ids that can be drafted
        self.register_buffer("d2t", torch.zeros(config.draft_vocab_size, dtype=torch.int64))
        t2d = torch.zeros(config.vocab_size, dtype=torch.bool)
        t2d[: config.draft_vocab_size] = True
        self.register_buffer("t2d", t2d)

    def use_vocabulary(self, ids: Tensor) -> None:
        """Let the head draft the target ids in `ids`, (draft_vocab_size,) int64 on the head's device, distinct and in
        any order."""
        ids = ids.sort().values
        self.d2t = ids - torch.arange(len(ids), device=ids.device)
        self.t2d = torch.zeros(self.config.vocab_size, dtype=torch.bool, device=ids.device).index_fill_(0, ids, True)

    def target_ids(self, draft_ids: Tensor) -> Tensor:
        """Convert draft ids to the target's ids."""
        offsets: Tensor = self.d2t
        return draft_ids + offsets[draft_ids]

    def features(self, states: Tensor) -> Tensor:
        """Combine the target's three hidden states, (tokens, 3 * hidden), into one feature, (tokens, hidden)."""
        feature: Tensor = self.fc(states)
        return feature

    def extend(
        self,
        embeddings: Tensor,
        features: Tensor,
        positions: Tensor,
        past: KeysValues | None,
        visible: Tensor | None = None,
    ) -> tuple[Tensor, KeysValues]:
        """Compute consecutive indices of one sequence after those of `past`.

        embeddings: (n, hidden) of the tokens one index later; features: (n, hidden), from `features` or the head's own
        outputs; positions: (n,); visible: (n, all) bool, the attention mask if it is not causal. Returns the outputs,
        (n, hidden), to feed back or to pass to `logits`, and all keys and values.
        """
        q, own = self.midlayer.project(embeddings, features, positions)
        if past is not None:
            own = KeysValues(torch.cat((past.keys, own.keys)), torch.cat((past.values, own.values)))
        count, total = q.shape[0], own.keys.shape[0]
        if visible is None:
            visible = torch.ones(count, total, dtype=torch.bool, device=q.device).tril(total - count)
        attended = functional.scaled_dot_product_attention(
            q.transpose(0, 1)[None],
            own.keys.transpose(0, 1)[None],
            own.values.transpose(0, 1)[None],
            attn_mask=visible,
            enable_gqa=True,
        )
        return self.midlayer.finish(attended[0].transpose(0, 1), features), own

    def logits(self, outputs: Tensor) -> Tensor:
        """Scores over the draft vocabulary, (tokens, draft_vocab_size) float32."""
        scores: Tensor = self.lm_head(self.norm(outputs))
        return scores.float()

    @torch.inference_mode()
    def draft(self, output: Tensor, past: KeysValues, position: int, count: int, embedding: Tensor) -> list[int]:
        """Draft `count` tokens greedily from the last index's output, (hidden,). position: that of the last index;
        embedding: the target's table. Does not change `past`, because the drafts' entries are void after the check."""
        return self._unrolled(
            output, past, position, count, embedding, lambda scores: int(self.target_ids(scores.argmax(-1)))
        )

    @torch.inference_mode()
    def sample(
        self, output: Tensor, past: KeysValues, position: int, count: int, embedding: Tensor, temperature: float
    ) -> Draws:
        """Draft like `draft`, but sample from the head's distribution at `temperature` (above 0). Tokens that the head
        cannot draft have probability 0."""
        law = torch.zeros(count, self.config.vocab_size, device=output.device)
        ids = self.target_ids(torch.arange(self.config.draft_vocab_size, device=output.device))
        rows = iter(law)

        def draw(scores: Tensor) -> int:
            probabilities = torch.softmax(scores[0] / temperature, -1)
            next(rows)[ids] = probabilities
            return int(ids[torch.multinomial(probabilities, 1)])

        return Draws(self._unrolled(output, past, position, count, embedding, draw), law)

    def _unrolled(
        self,
        output: Tensor,
        past: KeysValues,
        position: int,
        count: int,
        embedding: Tensor,
        choose: Callable[[Tensor], int],
    ) -> list[int]:
        """choose: returns the target id that it picks from scores over the draft vocabulary, (1, draft_vocab_size)."""
        ids: list[int] = []
        outputs = output[None]
        while True:
            ids.append(choose(self.logits(outputs)))
            if len(ids) == count:
                return ids
            position += 1
            at = torch.tensor([position], device=embedding.device)
            outputs, past = self.extend(embedding[ids[-1:]], outputs, at, past)


class _Layer(nn.Module):
    """A Llama layer whose attention takes the embedding and the feature, concatenated."""

    def __init__(self, config: HeadConfig) -> None:
        super().__init__()
        self._config = config
        hidden = config.hidden_size
        self.input_layernorm = nn.RMSNorm(hidden, eps=config.rms_norm_eps)
        self.hidden_norm = nn.RMSNorm(hidden, eps=config.rms_norm_eps)
        self.post_attention_layernorm = nn.RMSNorm(hidden, eps=config.rms_norm_eps)
        width, kv_width = config.num_attention_heads * config.head_dim, config.num_key_value_heads * config.head_dim
        self.self_attn = nn.ModuleDict(
            {
                "q_proj": nn.Linear(2 * hidden, width, bias=False),
                "k_proj": nn.Linear(2 * hidden, kv_width, bias=False),
                "v_proj": nn.Linear(2 * hidden, kv_width, bias=False),
                "o_proj": nn.Linear(width, hidden, bias=False),
            }
        )
        self.mlp = nn.ModuleDict(
            {
                "gate_proj": nn.Linear(hidden, config.intermediate_size, bias=False),
                "up_proj": nn.Linear(hidden, config.intermediate_size, bias=False),
                "down_proj": nn.Linear(config.intermediate_size, hidden, bias=False),
            }
        )

    def project(self, embeddings: Tensor, features: Tensor, positions: Tensor) -> tuple[Tensor, KeysValues]:
        """The rotated queries, (tokens, heads, head_dim), with the keys and values."""
        both = torch.cat((self.input_layernorm(embeddings), self.hidden_norm(features)), -1)
        config = self._config
        q = self.self_attn["q_proj"](both).unflatten(-1, (config.num_attention_heads, config.head_dim))
        k = self.self_attn["k_proj"](both).unflatten(-1, (config.num_key_value_heads, config.head_dim))
        v = self.self_attn["v_proj"](both).unflatten(-1, (config.num_key_value_heads, config.head_dim))
        return self._rotate(q, positions), KeysValues(self._rotate(k, positions), v)

    def finish(self, attended: Tensor, features: Tensor) -> Tensor:
        """Return the layer's output, (tokens, hidden), before the final norm. attended: (tokens, heads, head_dim)."""
        x = features + self.self_attn["o_proj"](attended.flatten(-2))
        h = self.post_attention_layernorm(x)
        out: Tensor = x + self.mlp["down_proj"](functional.silu(self.mlp["gate_proj"](h)) * self.mlp["up_proj"](h))
        return out

    def _rotate(self, x: Tensor, positions: Tensor) -> Tensor:
        half = self._config.head_dim // 2
        frequencies = 1.0 / self._config.rope_theta ** (torch.arange(half, device=positions.device) / half)
        angles = positions[:, None, None] * frequencies  # (tokens, 1, half)
        cos, sin = angles.cos().to(x.dtype), angles.sin().to(x.dtype)
        first, second = x[..., :half], x[..., half:]
        return torch.cat((first * cos - second * sin, second * cos + first * sin), -1)
