"""Trains an EAGLE-3 draft head for a finished model on a source of windows.

The head starts with parts of its target: the target's last norm and output rows, and the MLP of the target's last
layer. So it learns to use them, not what tokens are. It is trained on the model's whole distributions (soft targets)
over the windows' own text. A run can be resumed, like one of `trainer`.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

import msgspec
import torch
from torch import Tensor

from speculative.eagle.config import HeadConfig, default_layers
from speculative.eagle.head import EagleHead
from speculative.eagle.loss import unroll
from tools.training.model import Shape
from tools.training.optimizer import Optimizer
from tools.training.schedule import Schedule
from tools.training.windows import WindowSource

CHECKPOINT = "head.pt"


class Target(Protocol):
    """The interface of a finished model to the training of its head: `tools.training.model.Llama`, or any model that
    the engine serves."""

    @property
    def shape(self) -> Shape: ...

    @property
    def embedding(self) -> Tensor:
        """The table of its input, (vocab, hidden), on the device that computes everything."""
        ...

    def hidden_and_outputs(self, ids: Tensor, wanted: tuple[int, ...]) -> tuple[Tensor, list[Tensor]]:
        """ids: (1, tokens). Returns hidden states after the last norm, and the outputs of the wanted layers (from 0,
        ascending), (1, tokens, hidden) each."""
        ...

    def scores(self, hidden: Tensor) -> Tensor:
        """Logits, (1, tokens, vocab)."""
        ...

    def weight(self, name: str) -> Tensor:
        """A tensor by its name in Hugging Face checkpoints; `lm_head.weight` of a tied model is its embedding."""
        ...


class HeadSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How to train a head."""

    guesses: int = 3
    """Consecutive drafts in training."""
    windows: int = 8
    """Windows in one optimizer step."""
    muon_rate: float = 0.05
    adam_rate: float = 3e-3
    report_every: int = 10
    """Steps between reports."""
    save_every_s: float = 120.0


def begin(target: Target, source: WindowSource, draft_vocabulary: int, length: int) -> EagleHead:
    """A new head for this target, on its device. Its vocabulary is the most frequent counted tokens of the source's
    first 400 windows."""
    shape, device = target.shape, target.embedding.device
    head = EagleHead(
        HeadConfig(
            vocab_size=shape.vocab_size,
            draft_vocab_size=min(draft_vocabulary, shape.vocab_size),
            hidden_size=shape.hidden_size,
            intermediate_size=shape.intermediate_size,
            num_attention_heads=shape.num_attention_heads,
            num_key_value_heads=shape.num_key_value_heads,
            head_dim=shape.head_dim,
            rms_norm_eps=shape.rms_norm_eps,
            rope_theta=shape.rope_theta,
            max_position_embeddings=shape.max_position_embeddings,
            eagle_aux_hidden_state_layer_ids=default_layers(shape.num_hidden_layers),
        )
    ).to(device)
    head.use_vocabulary(_frequent(source, head.config, length).to(device))
    last = f"model.layers.{shape.num_hidden_layers - 1}"
    with torch.no_grad():
        head.lm_head.weight.copy_(target.weight("lm_head.weight")[head.t2d])
        head.norm.weight.copy_(target.weight("model.norm.weight"))
        head.fc.weight.zero_()
        head.fc.weight[:, -shape.hidden_size :] = torch.eye(shape.hidden_size, device=device)
        own = head.midlayer.state_dict()
        own["self_attn.o_proj.weight"].zero_()
        for name in ("mlp.gate_proj", "mlp.up_proj", "mlp.down_proj", "post_attention_layernorm"):
            own[f"{name}.weight"].copy_(target.weight(f"{last}.{name}.weight"))
    return head


class HeadTrainer:
    """One run on the target's device. The target does not change."""

    def __init__(
        self,
        head: EagleHead,
        target: Target,
        source: WindowSource,
        schedule: Schedule,
        settings: HeadSettings,
        folder: Path,
        say: Callable[[str], None] = lambda line: None,
    ) -> None:
        self._device = target.embedding.device
        self.head = head.to(self._device)
        self.step = 0
        self._target = target
        self._source = source
        self._schedule = schedule
        self._settings = settings
        self._folder = folder
        self._say = say
        self._optimizer = Optimizer(head, settings.muon_rate, settings.adam_rate)
        folder.mkdir(parents=True, exist_ok=True)
        if (folder / CHECKPOINT).exists():
            state = torch.load(folder / CHECKPOINT, map_location=self._device)
            head.load_state_dict(state["head"])
            self._optimizer.restore(state["optimizer"])
            self.step = state["step"]
            say(f"resumed at step {self.step}")

    def run(self, until: int | None = None) -> list[float]:
        """Train to the last step, or to step `until`. Returns the last report: accuracy by draft."""
        last = self._schedule.steps if until is None else until
        saved, began, first = time.monotonic(), time.process_time(), self.step
        recent: list[list[float]] = []
        report: list[float] = []
        while self.step < last:
            recent += self._one_step()
            if self.step % self._settings.report_every == 0:
                report = [sum(guess) / len(recent) for guess in zip(*recent, strict=True)]
                recent = []
                cpu_s = time.process_time() - began
                left_s = cpu_s / (self.step - first) * (last - self.step)
                shown = " ".join(f"{share:.3f}" for share in report)
                self._say(f"step {self.step}/{last}  right {shown}  cpu {cpu_s:.0f} s, {left_s:.0f} s left")
            if time.monotonic() - saved > self._settings.save_every_s:
                self.save()
                saved = time.monotonic()
        self.save()
        return report

    def save(self) -> None:
        """Write the checkpoint."""
        state = {"head": self.head.state_dict(), "optimizer": self._optimizer.state(), "step": self.step}
        draft = self._folder / (CHECKPOINT + ".new")
        torch.save(state, draft)
        draft.replace(self._folder / CHECKPOINT)

    def _one_step(self) -> list[list[float]]:
        settings, length = self._settings, self._schedule.length(self.step)
        accuracies = []
        for number in range(self.step * settings.windows, (self.step + 1) * settings.windows):
            window = self._source.window(number, length)
            ids = torch.tensor(window.tokens, device=self._device)
            counted = torch.tensor(window.counted, device=self._device)
            if not counted[2 : len(ids) - settings.guesses].any():
                continue
            states, scores = self._look(ids)
            with torch.autocast(self._device.type, torch.bfloat16):
                unrolled = unroll(
                    self.head, ids, states, scores, self._target.embedding.detach(), settings.guesses, counted
                )
            torch.autograd.backward(unrolled.loss / settings.windows)
            accuracies.append(unrolled.accuracy)
        self._optimizer.step(self._schedule.rate(self.step))
        self.step += 1
        return accuracies

    @torch.no_grad()
    def _look(self, ids: Tensor) -> tuple[Tensor, Tensor]:
        """The target's features and scores after every token."""
        with torch.autocast(self._device.type, torch.bfloat16):
            hidden, outputs = self._target.hidden_and_outputs(
                ids[None], self.head.config.eagle_aux_hidden_state_layer_ids
            )
            return torch.cat(outputs, -1)[0], self._target.scores(hidden)[0]


def _frequent(source: WindowSource, config: HeadConfig, length: int) -> Tensor:
    if config.draft_vocab_size == config.vocab_size:
        return torch.arange(config.vocab_size)
    counts: Counter[int] = Counter()
    for number in range(400):
        window = source.window(number, length)
        counts.update(token for token, counts_ in zip(window.tokens, window.counted, strict=True) if counts_)
    ids = [token for token, _ in counts.most_common(config.draft_vocab_size)]
    ids += [token for token in range(config.vocab_size) if token not in counts]
    return torch.tensor(ids[: config.draft_vocab_size])
