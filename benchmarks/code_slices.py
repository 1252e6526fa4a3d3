"""Whether the slices of code tell a broken model from a sound one: `python -m benchmarks.code_slices [--items 200]`.

The shipped code model on the embedded engine, in this process, beside itself with each defect that a gap can show
(`tools.quantization.defects`), greedily, on the same edits; each slice is judged by the gate as a release's is. Prompts
are laid out as the gateway does; its rules for where a completion ends have no part in it.

Last line: JSON. `caught`: the share of the defects that some slice failed; `missed`: their names; `sound`: the scores
of the sound model, by slice.
--check ends with an error when fewer than 80 % are caught, or the model beside itself in another batch fails.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from benchmarks.bounds import add_check, tell
from engines.embedded.config import EngineConfig, SchedulerConfig
from evals.gate import Decision, GateVerdict, PairedItem, SliceRule, judge
from evals.slices.code_edits import EDIT_SLICES
from evals.slices.item import Item
from tools.quantization import defects
from tools.quantization.asking import Asked
from tools.quantization.defects import SOUND, Defect

MODEL = Path("models/slipstream-code")
FIRST_SEED = 20_000_000
"""No choice was based on items from this seed on."""
MIN_CAUGHT = 0.8
MARGIN = 0.05
SEEDED = (
    defects.scaled_layer,
    defects.rounded_keys_and_values,
    defects.truncated_context,
    defects.wrong_template,
    defects.early_stop,
    defects.late_stop,
    defects.scales_of_wrong_axis,
    defects.shifted_scales,
)
"""All but `last_turn_only`, which no gap can show, and `lost_scales`, which only one slice of sixteen detects."""
Scores = dict[str, list[float]]


def main() -> None:
    """Ask, judge and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--items", type=int, default=200, help="edits that every model is asked")
    add_check(parser)
    options = parser.parse_args()
    seeds = range(FIRST_SEED, FIRST_SEED + options.items)
    items = {one.name: [one.item(seed) for seed in seeds] for one in EDIT_SLICES}
    sound = scores(items, SOUND)
    means = {name: round(sum(each) / options.items, 3) for name, each in sound.items()}
    print(f"{options.items} edits; sound: " + ", ".join(f"{name} {mean:.3f}" for name, mean in means.items()))
    again = verdict(items, sound, scores(items, SOUND, most=3))
    print(f"{'sound, another batch':<22} {again.decision.value}: {again.reason}")
    missed = []
    for defect in (make() for make in SEEDED):
        found = verdict(items, sound, scores(items, defect))
        fell = ", ".join(f"{one.slice} {one.difference:+.3f} {one.decision.value}" for one in found.slices)
        print(f"{defect.name:<22} {found.decision.value}: {fell}", flush=True)
        if found.decision is not Decision.FAIL:
            missed.append(defect.name)
    caught = 1 - len(missed) / len(SEEDED)
    print(json.dumps({"items": options.items, "sound": means, "caught": round(caught, 3), "missed": missed}))
    wrong = [f"{caught:.0%} of the defects were caught"] if caught < MIN_CAUGHT else []
    wrong += ["an equal model failed"] if again.decision is Decision.FAIL else []
    tell(wrong, options.check)


def scores(items: dict[str, list[Item]], defect: Defect, most: int = 64) -> Scores:
    """Scores by slice. All slices have the same edits, so each is answered once. most: answers computed together."""
    config = EngineConfig(scheduler=SchedulerConfig(max_running=most, max_batch_tokens=2048, max_queued=100_000))
    answers = Asked(MODEL, defect, config).answers(next(iter(items.values())))
    return {
        name: [item.score(answer) for item, answer in zip(each, answers, strict=True)] for name, each in items.items()
    }


def verdict(items: dict[str, list[Item]], was: Scores, now: Scores) -> GateVerdict:
    """The verdict of one look at all items."""
    paired = {
        name: [PairedItem(name, item.cluster, *pair) for item, *pair in zip(each, was[name], now[name], strict=True)]
        for name, each in items.items()
    }
    count = len(next(iter(items.values())))
    rule = SliceRule(margin=MARGIN, first_look=count, budget=count)
    return judge(paired, dict.fromkeys(items, rule))


if __name__ == "__main__":
    main()
