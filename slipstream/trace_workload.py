"""Derives a plan's workload from a recorded trace."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import TYPE_CHECKING

from contracts.nearest_rank import nearest_rank
from tools.planning.workload import Workload
from tools.simulator.bound import clairvoyant_hit_rate
from tools.simulator.trace import TRACE_BLOCK_TOKENS
from tools.workload.arrivals import burstiness

if TYPE_CHECKING:
    from tools.simulator.arrival import Arrival

MINUTE_S = 60.0


def trace_workload(arrivals: Sequence[Arrival]) -> Workload:
    """The workload: the busiest minute is the peak, lengths are means, and every repeated block counts as cached.

    arrivals: by time. The hit rate is that of unlimited caches, with every request placed where its blocks are.
    """
    prompts = [arrival.prompt_tokens for arrival in arrivals]
    arriving = burstiness([arrival.at_s for arrival in arrivals])
    average = arriving.rate or len(arrivals) / MINUTE_S
    peak = max(arriving.busiest_minute / MINUTE_S, average)
    mean = statistics.fmean(prompts)
    return Workload(
        requests_per_s=peak,
        prompt_tokens=mean,
        output_tokens=statistics.fmean(arrival.output_tokens for arrival in arrivals),
        cached_share=clairvoyant_hit_rate(arrivals, 0, TRACE_BLOCK_TOKENS),
        longest_tokens=max(arrival.prompt_tokens + arrival.output_tokens for arrival in arrivals),
        prompt_p99_tokens=nearest_rank(sorted(prompts), 99) or 0,
        prompt_scv=statistics.pvariance(prompts, mean) / mean**2,
        arrival_scv=1.0 if arriving.interarrival_cv is None else arriving.interarrival_cv**2,
        average_share=average / peak,
    )
