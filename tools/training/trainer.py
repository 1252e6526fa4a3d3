"""Trains a Llama on a source of windows: seeded, resumable bit for bit, and with low demands (one thread is enough).

    trainer = Trainer(model, source, schedule, settings, folder)   # resumes if the folder holds a checkpoint
    trainer.run()

The folder gets `checkpoint.pt` (weights, optimizer, step) and `log.jsonl` (one line per report). SIGTERM and SIGINT end
the run after the current step, with a checkpoint. To continue for longer, or to start the decay of the rate, restart it
with another schedule.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import msgspec
import torch

from tools.training.cross_entropy import cross_entropy_sum
from tools.training.model import Llama
from tools.training.optimizer import Optimizer
from tools.training.schedule import Schedule
from tools.training.windows import WindowSource, batch

CHECKPOINT = "checkpoint.pt"


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of a run."""

    batch_tokens: int = 4096
    """Tokens in one optimizer step."""
    micro_tokens: int = 4096
    """Tokens in one forward and backward pass; fewer need less memory. A window is never split."""
    muon_rate: float = 0.02
    adam_rate: float = 3e-3
    device: str = "cpu"
    compiled: bool = False
    """Whether to run layers through torch.compile: a tenth faster, after seconds to a minute for each window length."""
    report_every: int = 20
    """Steps between reports."""
    save_every_s: float = 120.0
    """Wall time between checkpoints."""
    evaluate_every: int = 0
    """Steps between evaluations; 0 for none."""


class Trainer:
    """One run."""

    def __init__(
        self,
        model: Llama,
        source: WindowSource,
        schedule: Schedule,
        settings: Settings,
        folder: Path,
        evaluate: Callable[[Llama], dict[str, float]] | None = None,
        say: Callable[[str], None] = lambda line: None,
    ) -> None:
        """evaluate: returns figures to log; say: called with lines of progress."""
        self.model = model.to(settings.device)
        if settings.compiled:
            model.compile_layers()
        self.step = 0
        self._source = source
        self._schedule = schedule
        self._settings = settings
        self._folder = folder
        self._evaluate = evaluate
        self._say = say
        self._optimizer = Optimizer(model, settings.muon_rate, settings.adam_rate)
        self._tokens = 0
        self._windows = 0
        """Number of windows read so far, which is the number of the next one."""
        self._stopping = False
        folder.mkdir(parents=True, exist_ok=True)
        if (folder / CHECKPOINT).exists():
            self._restore()

    def run(self, until: int | None = None) -> None:
        """Train until the schedule's last step, step `until` or a stop signal, whichever is first."""
        last = self._schedule.steps if until is None else min(until, self._schedule.steps)
        before = {name: signal.signal(name, self._stop) for name in (signal.SIGTERM, signal.SIGINT)}
        saved = began = time.monotonic()
        began_cpu, first, losses = time.process_time(), self.step, []
        try:
            while self.step < last and not self._stopping:
                losses.append(self._one_step())
                if self.step % self._settings.report_every == 0:
                    per_step = (time.monotonic() - began) / (self.step - first)
                    cpu_s = time.process_time() - began_cpu
                    self._report(sum(losses) / len(losses), per_step * (last - self.step), cpu_s)
                    losses = []
                if self._settings.evaluate_every and self.step % self._settings.evaluate_every == 0:
                    self._log_evaluation()
                if time.monotonic() - saved > self._settings.save_every_s:
                    self.save()
                    saved = time.monotonic()
        finally:
            for name, handler in before.items():
                signal.signal(name, handler)
        self.save()

    def save(self) -> None:
        """Write the checkpoint; a crash while writing keeps the previous one."""
        state = {
            "model": self.model.state_dict(),
            "shape": msgspec.to_builtins(self.model.shape),
            "optimizer": self._optimizer.state(),
            "step": self.step,
            "tokens": self._tokens,
            "windows": self._windows,
        }
        draft = self._folder / (CHECKPOINT + ".new")
        torch.save(state, draft)
        draft.replace(self._folder / CHECKPOINT)

    def _restore(self) -> None:
        state: dict[str, Any] = torch.load(self._folder / CHECKPOINT, map_location=self._settings.device)
        self.model.load_state_dict(state["model"])
        self._optimizer.restore(state["optimizer"])
        self.step, self._tokens, self._windows = state["step"], state["tokens"], state["windows"]
        self._say(f"resumed at step {self.step}, {self._tokens} tokens")

    def _one_step(self) -> float:
        """Mean loss of the step's counted tokens, in nats."""
        settings = self._settings
        length = self._schedule.length(self.step)
        windows = max(1, settings.batch_tokens // length)
        data = batch(self._source, self._windows, windows, length)
        total = int(data.counted.sum()) or 1
        loss_sum = 0.0
        at_once = max(1, settings.micro_tokens // length)
        for start in range(0, windows, at_once):
            part = slice(start, start + at_once)
            inputs, targets = data.inputs[part].to(settings.device), data.targets[part].to(settings.device)
            counted = data.counted[part].to(settings.device)
            positions = counted.flatten().nonzero()[:, 0]
            # master weights stay float32
            with torch.autocast(settings.device, torch.bfloat16):
                hidden = self.model(inputs).flatten(0, 1).index_select(0, positions)  # not all: the table is wide
            loss = cross_entropy_sum(hidden, self.model.embedding, targets.flatten()[positions]) / total
            torch.autograd.backward(loss)
            loss_sum += loss.detach().item()
        self._optimizer.step(self._schedule.rate(self.step))
        self.step += 1
        self._windows += windows
        self._tokens += windows * length
        return loss_sum

    def _report(self, loss: float, left_s: float, cpu_s: float) -> None:
        share = self._schedule.rate(self.step)
        self._say(
            f"step {self.step}/{self._schedule.steps}  loss {loss:.4f}  {self._tokens / 1e6:.2f}M tokens  "
            f"rate x{share:.2f}  cpu {cpu_s:.0f} s  {left_s / 60:.0f} min left"
        )
        self._log({"step": self.step, "tokens": self._tokens, "loss": round(loss, 5), "cpu_s": round(cpu_s, 1)})

    def _log_evaluation(self) -> None:
        if self._evaluate is None:
            return
        figures = self._evaluate(self.model)
        self._say("  ".join(f"{name} {value:.4f}" for name, value in figures.items()))
        self._log({"step": self.step, "tokens": self._tokens, **figures})

    def _log(self, line: dict[str, float]) -> None:
        with (self._folder / "log.jsonl").open("ab") as file:
            file.write(msgspec.json.encode(line) + b"\n")

    def _stop(self, _number: int, _frame: FrameType | None) -> None:
        self._stopping = True
