"""Samples of the gateways' metrics, each at its own port, found as Prometheus finds them."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import httpx2
import msgspec
from prometheus_client.parser import text_string_to_metric_families

from infra.local.folders import DataFolder
from tests.deployment import Deployment
from tests.e2e.failures.processes import fresh_connections, process_ids
from tests.waiting import GUARD_S

Samples = dict[tuple[str, frozenset[tuple[str, str]]], float]


def targets(deployment: Deployment) -> dict[str, str]:
    """Metrics URLs of the processes that `up` lists, by name."""
    listed: list[dict[str, Any]] = msgspec.json.decode(DataFolder(deployment.data).prometheus_targets.read_bytes())
    return {entry["labels"]["instance"]: f"http://{entry['targets'][0]}/metrics" for entry in listed}


async def scrape(deployment: Deployment) -> Samples:
    """The sum over all running gateways of every sample, by name and labels."""
    found: Counter[tuple[str, frozenset[tuple[str, str]]]] = Counter()
    for samples in (await scrape_each(deployment)).values():
        found.update(samples)
    return dict(found)


async def scrape_each(deployment: Deployment) -> dict[str, Samples]:
    """What each running gateway tells, by its name. One that starts is waited for."""
    told: dict[str, Samples] = {}
    async with fresh_connections() as client, asyncio.timeout(GUARD_S):
        while waited_for := {name for name in process_ids(deployment) if name.startswith("gateway-")} - told.keys():
            for name in waited_for:
                try:
                    told[name] = samples_in(await client.get(targets(deployment)[name]))
                except httpx2.TransportError:
                    await asyncio.sleep(0.02)  # it does not listen yet, or has just died
    return told


def samples_in(response: httpx2.Response) -> Samples:
    """The samples of one answer."""
    assert response.status_code == 200
    families = text_string_to_metric_families(response.text)
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in families
        for sample in family.samples
    }


def total(samples: Samples, name: str, **labels: str) -> float:
    """The sum of all samples of this name that have these labels; 0 when there is none."""
    wanted = set(labels.items())
    return sum(value for (sample, own), value in samples.items() if sample == name and wanted <= own)


def increase(before: dict[str, Samples], after: dict[str, Samples], name: str, **labels: str) -> float:
    """By how much a counter of all gateways together grew, as PromQL's `increase`: one of a process that was started
    again began at 0. before, after: of `scrape_each`."""
    grown = 0.0
    for gateway, samples in after.items():
        earlier = before.get(gateway, {})
        if total(earlier, "process_start_time_seconds") != total(samples, "process_start_time_seconds"):
            earlier = {}
        grown += total(samples, name, **labels) - total(earlier, name, **labels)
    return grown
