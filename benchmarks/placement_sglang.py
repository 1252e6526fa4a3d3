"""Two real SGLang replicas behind our router: prefixes found again, against round robin in the same run.

    python -m benchmarks.placement_sglang [--rounds 4] [--conversations 6] [--at-once 2] [--own-template]

Needs SLIPSTREAM_TEST_SGLANG_VENV and SLIPSTREAM_TEST_SGLANG_SERVE (tests/sglang/server.py). Plain, tool, system-prompt
and multi-turn chats are interleaved, some at a time; every turn goes through round robin and through `prefix` one after
the other, each with caches of its own, cold at the start of a round. Hit rate and cached tokens are the engines' own
counts and do not depend on how busy the machine is; times to the first token stand beside them. Chats are rendered by a
template that writes tools into the prompt; --own-template takes the shipped model's, which leaves them out. Last line:
JSON.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import tempfile
from pathlib import Path

from benchmarks.needs import missing
from tests.sglang.fleet import KINDS, Measured, SGLangFleet, hit_rate, prediction_error, traffic, with_tools_template
from tests.sglang.server import MODELS, UNSET, settings, sglang_server

POLICIES = ("round_robin", "prefix")


async def compare(arguments: argparse.Namespace) -> None:
    model = MODELS / "slipstream-chat"
    measured: dict[str, list[list[Measured]]] = {policy: [] for policy in POLICIES}
    with tempfile.TemporaryDirectory() as folder:
        served = model if arguments.own_template else with_tools_template(model, Path(folder))
        async with sglang_server(served, "tiny", "token") as one, sglang_server(served, "tiny", "token") as two:
            print("both replicas are ready", flush=True)
            async with SGLangFleet((one, two), "least_load") as fleet:
                await traffic((fleet,), 1, 0)  # first requests compile and allocate
            for number in range(arguments.rounds):
                async with SGLangFleet((one, two), POLICIES[0]) as blind, SGLangFleet((one, two), POLICIES[1]) as ours:
                    results = await traffic((blind, ours), arguments.conversations, number + 1, arguments.at_once)
                for policy, result in zip(POLICIES, results, strict=True):
                    measured[policy].append(result)
    report(measured)


def report(measured: dict[str, list[list[Measured]]]) -> None:
    found: dict[str, dict[str, float]] = {}
    for policy, rounds in measured.items():
        rates = [hit_rate(one) for one in rounds]
        everything = [one for some in rounds for one in some]
        times = sorted(one.ttft_s * 1e3 for one in everything)
        spread = statistics.stdev(rates) if len(rates) > 1 else 0.0
        found[policy] = {
            "hit_rate": round(statistics.fmean(rates), 4), "hit_rate_sd": round(spread, 4),
            "ttft_p50_ms": round(statistics.median(times), 1), "ttft_p90_ms": round(times[int(len(times) * 0.9)], 1),
        }  # fmt: skip
        for kind in ("", *KINDS):
            some = [one for one in everything if kind in ("", one.kind)]
            p50_ms = round(statistics.median(one.ttft_s for one in some) * 1e3, 1)
            if kind:
                found[policy] |= {f"hit_rate {kind}": round(hit_rate(some), 4), f"ttft_p50_ms {kind}": p50_ms}
            print(f"{policy:<12} {kind or 'all':<11} {len(some):>4} chats: hit rate {hit_rate(some):.3f}, "
                  f"TTFT p50 {p50_ms:>6} ms")  # fmt: skip
        print(f"{policy:<12} hit rate by round {', '.join(f'{rate:.3f}' for rate in rates)}")
    kinds: dict[str, dict[str, float]] = {}
    for kind in KINDS:
        some = [one for each in measured["prefix"] for one in each if one.kind == kind]
        kinds[kind] = {
            "prompt_tokens": sum(one.usage.prompt_tokens for one in some),
            "predicted": sum(one.predicted for one in some), "reported": sum(one.usage.cached_tokens for one in some),
            "mean_error_of_prompt": round(prediction_error(some), 4),
            "miscounted_prompts": sum(one.counted_tokens != one.usage.prompt_tokens for one in some),
        }  # fmt: skip
        print(f"prefix, {kind:<11} " + ", ".join(f"{key} {value:,}" for key, value in kinds[kind].items()))
    ratio = found["prefix"]["hit_rate"] / max(found["round_robin"]["hit_rate"], 1e-9)
    print(f"hit rate {ratio:.2f} times round robin's")
    print(json.dumps({"policies": found, "prediction": kinds, "hit_rate_ratio": round(ratio, 3)}))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--conversations", type=int, default=6, help="of each kind, four turns each")
    parser.add_argument("--at-once", type=int, default=2, help="1: nobody's computing is in anybody's way")
    parser.add_argument("--own-template", action="store_true", help="the model's own chat template, without tools")
    arguments = parser.parse_args()
    if settings() is None:
        missing(UNSET)
    asyncio.run(compare(arguments))


if __name__ == "__main__":
    main()
