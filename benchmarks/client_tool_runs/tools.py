"""The four tools with their documented command lines and the readers of their results."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.client_tool_runs.tool import (
    INPUT_TOKENS,
    OUTPUT_TOKENS,
    REQUESTS,
    STREAMS,
    Endpoint,
    Figures,
    Target,
    Tool,
)

OFFLINE = {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1"}
"""Keeps the tools from looking for a tokenizer on a hub."""


def _json(text: str) -> Any:
    return json.loads(text)  # SGLang writes Infinity, which is not JSON: this parser reads it


def _openai_key(target: Target) -> Mapping[str, str | None]:
    return {**OFFLINE, "OPENAI_API_KEY": target.key}


def _guidellm(target: Target) -> tuple[str, ...]:
    backend = f"target={target.url},model={target.model},api_key={target.key},request_format={target.endpoint.value}"
    return (
        "guidellm", "run", "--backend", f"kind=openai_http,{backend}",
        "--profile", f"kind=concurrent,streams={STREAMS}", "--constraint", f"kind=max_requests,count={REQUESTS}",
        "--tokenizer", f"kind=hf_auto,model={target.tokenizer}",
        "--data", f"kind=synthetic_text,prompt_tokens={INPUT_TOKENS},output_tokens={OUTPUT_TOKENS}",
        "--output", "kind=json,path=result.json", "--disable-console-interactive",
    )  # fmt: skip


def read_guidellm(folder: Path) -> Figures:
    """The figures of its JSON file."""
    metrics = _json((folder / "result.json").read_text())["benchmarks"][0]["metrics"]
    totals = metrics["request_totals"]

    def of(name: str) -> dict[str, Any]:
        return dict(metrics[name]["successful"])

    return Figures(
        totals["successful"],
        totals["errored"] + totals["incomplete"],
        int(of("prompt_token_count")["total_sum"]),
        int(of("output_token_count")["total_sum"]),
        of("time_to_first_token_ms")["median"],
        of("inter_token_latency_ms")["median"],
        of("output_tokens_per_second")["mean"],
    )


def _sglang(target: Target) -> tuple[str, ...]:
    chat = target.endpoint is Endpoint.CHAT
    return (
        "python", "-m", "sglang.bench_serving", "--backend", "sglang-oai-chat" if chat else "sglang-oai",
        "--base-url", target.url, "--model", target.model, "--tokenizer", str(target.tokenizer),
        "--dataset-name", "random-ids", "--random-input-len", str(INPUT_TOKENS),
        "--random-output-len", str(OUTPUT_TOKENS), "--num-prompts", str(REQUESTS), "--max-concurrency", str(STREAMS),
        "--output-file", "result.jsonl",
    )  # fmt: skip


def read_sglang(folder: Path) -> Figures:
    """The figures of the last line of its file."""
    return _served(_json((folder / "result.jsonl").read_text().splitlines()[-1]))


def _vllm(target: Target) -> tuple[str, ...]:
    return (
        "vllm", "bench", "serve", "--backend", "openai-chat" if target.endpoint is Endpoint.CHAT else "openai",
        "--base-url", target.url, "--endpoint", target.endpoint.value, "--model", target.model,
        "--tokenizer", str(target.tokenizer), "--dataset-name", "random", "--random-input-len", str(INPUT_TOKENS),
        "--random-output-len", str(OUTPUT_TOKENS), "--num-prompts", str(REQUESTS), "--max-concurrency", str(STREAMS),
        "--save-result", "--result-filename", "result.json",
    )  # fmt: skip


def read_vllm(folder: Path) -> Figures:
    """The figures of its JSON file."""
    return _served(_json((folder / "result.json").read_text()))


def _served(result: dict[str, Any]) -> Figures:
    """The figures by the names that vLLM's script shares with SGLang's, which was made from it."""
    return Figures(
        result["completed"],
        REQUESTS - result["completed"],
        result["total_input_tokens"],
        result["total_output_tokens"],
        result["median_ttft_ms"],
        result["median_itl_ms"],
        result["output_throughput"],
    )


def _aiperf(target: Target) -> tuple[str, ...]:
    return (
        "aiperf", "profile", "--model", target.model, "--url", target.url, "--api-key", target.key,
        "--endpoint-type", "chat" if target.endpoint is Endpoint.CHAT else "completions", "--streaming",
        "--tokenizer", str(target.tokenizer), "--concurrency", str(STREAMS), "--request-count", str(REQUESTS),
        "--synthetic-input-tokens-mean", str(INPUT_TOKENS), "--output-tokens-mean", str(OUTPUT_TOKENS),
        "--extra-inputs", "ignore_eos:true", "--use-server-token-count", "--ui", "none", "--artifact-dir", ".",
    )  # fmt: skip


def read_aiperf(folder: Path) -> Figures:
    """The figures of the summary among its artifacts."""
    result = _json(next(folder.rglob("profile_export_aiperf.json")).read_text())

    def of(name: str, figure: str) -> float:
        return float((result.get(name) or {}).get(figure) or 0.0)

    return Figures(
        int(of("request_count", "avg")),
        int(of("error_request_count", "avg")),
        int(of("total_isl", "avg")),
        int(of("total_output_tokens", "avg")),
        of("time_to_first_token", "p50"),
        of("inter_token_latency", "p50"),
        of("output_token_throughput", "avg"),
    )


TOOLS = {
    tool.name: tool
    for tool in (
        Tool("guidellm", _guidellm, read_guidellm, lambda _: OFFLINE, warm_ups=0, prompt_from_server=True),
        Tool("sglang", _sglang, read_sglang, _openai_key, warm_ups=1, prompt_from_server=False),
        Tool("vllm", _vllm, read_vllm, _openai_key, warm_ups=0, prompt_from_server=True),
        # offline it takes the path of a folder for the name of a model on the hub
        Tool("aiperf", _aiperf, read_aiperf, lambda _: dict.fromkeys(OFFLINE), warm_ups=0, prompt_from_server=True),
    )
}
"""The tools by their name in `--tool`."""
