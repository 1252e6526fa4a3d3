"""Requests as a trace in Mooncake's format: times, lengths and numbers of blocks, no text and no digest.

Equal numbers are equal prefixes. Each trace assigns its own numbers in order of appearance, so traces cannot be
compared with each other, nor with the deployment's records.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec

from gateway.prefixes.template import SAMPLE_TOKENS
from tools.workload.request import Request


class Line(msgspec.Struct, frozen=True):
    """A line that `tools.simulator.trace.MooncakeLine` reads. timestamp: whole milliseconds from the first request."""

    timestamp: int
    input_length: int
    output_length: int
    hash_ids: list[int]


def lines(requests: Iterable[Request]) -> Iterator[Line]:
    """One line for each request that an engine received. requests: by arrival.

    Blocks without a known digest, such as the last one of every prompt, get numbers of their own.
    """
    numbers: dict[int, int] = {}
    following = 0
    start_s: float | None = None
    for request in requests:
        if not request.prompt_tokens:
            continue
        start_s = request.at_s if start_s is None else start_s
        hash_ids = []
        known = request.blocks[: request.prompt_tokens // SAMPLE_TOKENS]
        for block in known:
            number = numbers.get(block)
            if number is None:
                number = numbers[block] = following
                following += 1
            hash_ids.append(number)
        for _ in range(-(-request.prompt_tokens // SAMPLE_TOKENS) - len(known)):
            hash_ids.append(following)
            following += 1
        yield Line(
            round((request.at_s - start_s) * 1e3), request.prompt_tokens, max(request.output_tokens, 1), hash_ids
        )
