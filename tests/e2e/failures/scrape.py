"""Samples of a gateway's /metrics."""

from __future__ import annotations

import httpx2
from prometheus_client.parser import text_string_to_metric_families

from tests.deployment import Deployment
from tests.e2e.failures.processes import fresh_connections, gateway_of, process_ids

Samples = dict[tuple[str, frozenset[tuple[str, str]]], float]


async def scrape(deployment: Deployment) -> Samples:
    """Every sample, by name and labels, as one instance tells it once all have poured what they counted."""
    await scrape_each(deployment)
    async with fresh_connections() as client:
        return samples_in(await client.get(f"{deployment.url}/metrics"))


async def scrape_each(deployment: Deployment) -> dict[str, Samples]:
    """What each running gateway tells, by its name. A gateway that is asked pours what it counted, so all are asked
    twice."""
    await _ask_each(deployment)
    return await _ask_each(deployment)


async def _ask_each(deployment: Deployment) -> dict[str, Samples]:
    told: dict[str, Samples] = {}
    wanted = {name for name in process_ids(deployment) if name.startswith("gateway-")}
    async with fresh_connections() as client:
        while set(told) < wanted:
            async with client.stream("GET", f"{deployment.url}/metrics") as response:
                name = gateway_of(deployment, response)
                await response.aread()
                told[name] = samples_in(response)
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
