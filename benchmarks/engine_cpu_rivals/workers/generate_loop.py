"""Batches of prompts from stdin through `transformers`' generate, times of the tokens to stdout; JSON lines.

python generate_loop.py FOLDER THREADS
"""

from __future__ import annotations

import importlib
import json
import sys
import time
from typing import Any

torch: Any = importlib.import_module("torch")
transformers: Any = importlib.import_module("transformers")


class Clock:
    """A streamer that only records times; `generate` passes it the prompts first, then every step's tokens."""

    def __init__(self) -> None:
        self._started_s = time.perf_counter()
        self.arrived_s: list[float] = []

    def put(self, _: Any) -> None:
        """Record the time of one step's tokens."""
        self.arrived_s.append(time.perf_counter() - self._started_s)

    def end(self) -> None:
        """Do nothing; `generate` calls it after the last token."""


def main() -> None:
    folder, threads = sys.argv[1], int(sys.argv[2])
    torch.set_num_threads(threads)
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype="auto")
    # passed to generate, None would mean the configured token
    model.generation_config.eos_token_id = None
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    for line in sys.stdin:
        task = json.loads(line)
        prompts, tokens = task["prompts"], task["tokens"]
        clock = Clock()
        width = max(map(len, prompts))
        ids = torch.tensor([[0] * (width - len(prompt)) + prompt for prompt in prompts])
        mask = torch.tensor([[0] * (width - len(prompt)) + [1] * len(prompt) for prompt in prompts])
        options = {"max_new_tokens": tokens, "do_sample": False, "pad_token_id": 0}
        with torch.inference_mode():
            out = model.generate(ids, attention_mask=mask, streamer=clock, **options)
        if out.shape[1] != width + tokens:
            raise RuntimeError(f"{tokens} tokens were asked for, {out.shape[1] - width} came")
        answer = {"arrived_s": clock.arrived_s[1:], "text": tokenizer.decode(out[0, width:])}
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
