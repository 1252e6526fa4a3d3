"""Trains the chat model: `python -m training.chat OUT --init-from FOLDER`, one stage of a curriculum at a time.

A stage is a mixture of slices and window lengths. Starting it again resumes it. Only the training side of evals/slices
is read; the learning curve in log.jsonl is of held-out items, right when the model's most likely token is the
reference's at every place of the answer, which is what greedy decoding needs to give it letter by letter.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from pathlib import Path

import torch

from evals.slices.registry import SLICES, find
from evals.slices.split import Split
from training import export
from training.chat_source import BEGIN, ChatCoder, ChatSource
from training.model import Llama
from training.schedule import Schedule
from training.trainer import Settings, Trainer

POSITIONS = 4608
"""A text of 4,000 tokens, the question and the answer."""


def learning_curve(
    coder: ChatCoder, names: list[str], count: int, seed: int = 0
) -> Callable[[Llama], dict[str, float]]:
    """Share of held-out items of each slice that greedy decoding answers with the very reference."""
    slices = {
        name: [coder.conversation(find(name).item(seed + number, Split.HELD_OUT)) for number in range(count)]
        for name in names
    }

    def evaluate(model: Llama) -> dict[str, float]:
        return {name: _exact(model, conversations) for name, conversations in slices.items()}

    return evaluate


@torch.no_grad()
def _exact(model: Llama, conversations: list[tuple[list[int], list[bool]]]) -> float:
    right = 0
    at_once = max(1, 8192 // max(len(tokens) for tokens, _ in conversations))
    for start in range(0, len(conversations), at_once):
        part = conversations[start : start + at_once]
        longest = max(len(tokens) for tokens, _ in part)
        ids = torch.tensor([tokens + [BEGIN] * (longest - len(tokens)) for tokens, _ in part])
        # Only the last answer counts here: what the conversation says before it is given.
        counted = torch.tensor([_last_answer(counted) + [False] * (longest - len(counted)) for _, counted in part])
        with torch.autocast("cpu", torch.bfloat16):
            hidden = model(ids[:, :-1])
            rows, places = counted[:, 1:].nonzero(as_tuple=True)
            best = model.scores(hidden[rows, places]).argmax(-1)
        wrong = rows[best != ids[:, 1:][rows, places]]
        right += len(part) - len(set(wrong.tolist()))
    return right / len(conversations)


def _last_answer(counted: list[bool]) -> list[bool]:
    start = len(counted) - counted[::-1].index(False)
    return [counts and place >= start for place, counts in enumerate(counted)]


def main() -> None:
    """Run a stage."""
    arguments = _arguments()
    torch.set_num_threads(1)
    coder = ChatCoder(arguments.init_from)
    shares = {find(name): share for name, share in arguments.mix.items()}
    names = [one.name for one in SLICES if one.name in arguments.watch or not arguments.watch]
    trainer = Trainer(
        model=export.load(arguments.init_from, max_position_embeddings=POSITIONS),
        source=ChatSource(coder, shares, arguments.seed),
        schedule=Schedule(
            steps=arguments.steps,
            warmup=arguments.warmup,
            decay=arguments.decay,
            lengths=arguments.lengths,
            seed=arguments.seed,
        ),
        settings=Settings(
            muon_rate=arguments.muon_rate, adam_rate=arguments.adam_rate, evaluate_every=arguments.evaluate_every
        ),
        folder=arguments.out,
        evaluate=learning_curve(coder, names, arguments.items),
        say=lambda line: print(line, file=sys.stderr, flush=True),
    )
    trainer.run()
    end_ids = json.loads((arguments.init_from / "generation_config.json").read_text())["eos_token_id"]
    export.save(trainer.model, arguments.out / "export", arguments.init_from, end_ids)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m training.chat", description=__doc__)
    parser.add_argument("out", type=Path, help="folder of checkpoint, log and export")
    parser.add_argument("--init-from", type=Path, default=Path("models/slipstream-chat"), help="weights and tokenizer")
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--warmup", type=int, default=40)
    parser.add_argument("--decay", type=int, default=0)
    parser.add_argument("--mix", type=_shares, required=True, help='slice to share of the tokens, {"facts": 1, ...}')
    parser.add_argument("--lengths", type=_lengths, default={512: 1.0}, help='window to share of the steps, {"512": 1}')
    parser.add_argument("--muon-rate", type=float, default=0.01)
    parser.add_argument("--adam-rate", type=float, default=2e-3)
    parser.add_argument("--evaluate-every", type=int, default=200)
    parser.add_argument(
        "--watch", type=lambda text: text.split(","), default=[], help="slices of the curve, all if none"
    )
    parser.add_argument("--items", type=int, default=60)
    parser.add_argument("--seed", type=int, default=1)
    return parser.parse_args()


def _shares(text: str) -> dict[str, float]:
    return {str(name): float(share) for name, share in json.loads(text).items()}


def _lengths(text: str) -> dict[int, float]:
    return {int(length): float(share) for length, share in json.loads(text).items()}


if __name__ == "__main__":
    main()
