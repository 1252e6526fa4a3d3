"""Settings of the background worker."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import msgspec

from contracts.fixed import Fixed
from contracts.metrics import MetricsConfig
from control.audit.config import AuditConfig
from control.billing.upkeep_config import UpkeepConfig
from control.completions.upkeep_config import CompletionUpkeepConfig
from control.prefixes.upkeep_config import PrefixUpkeepConfig
from control.releases.rollout.config import EvidenceConfig, ReleasesConfig
from control.shadow.upkeep_config import ShadowUpkeepConfig
from infra.local.folders import DataFolder


class Queue(StrEnum):
    """The queues of a worker."""

    UPKEEP = "upkeep"
    """Upkeep of the ledger, and deletion of expired rows."""
    WEBHOOKS = "webhooks"
    """Deliveries to the servers of customers."""
    RELEASES = "releases"
    """Running releases, which are judged and advanced every few seconds."""
    EVALS = "evals"
    """Runs of evals, which take minutes to hours."""
    BATCHES = "batches"
    """Batches of tenants, which take up to a day, and background responses."""


PROCESSES = (tuple(Queue),)
"""The queues of each worker process of `up`: one process serves all of them, and none waits for another."""


class WorkerConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The schedule of background work, and how long it keeps data."""

    metrics: MetricsConfig = MetricsConfig()
    """One worker's Prometheus metrics."""
    roll_up_every_s: Annotated[float, msgspec.Meta(ge=1, le=3600)] = 3.0
    """Interval between runs of the usage roll-up, and so the age of the admin API's totals. Each run replaces whole
    hours. After a slow run, the next one waits ten times as long as that run took."""
    ledger: UpkeepConfig = UpkeepConfig()
    """Upkeep of the ledger."""
    prefixes: PrefixUpkeepConfig = PrefixUpkeepConfig()
    """Upkeep of the samples of prompts' prefixes."""
    completions: CompletionUpkeepConfig = CompletionUpkeepConfig()
    """Totals of completions."""
    releases: ReleasesConfig = ReleasesConfig()
    """How releases are advanced."""
    evidence: EvidenceConfig = EvidenceConfig()
    """Retention of the evidence of verdicts."""
    shadow: ShadowUpkeepConfig = ShadowUpkeepConfig()
    """Retention of answer pairs and their reviews."""
    audit: AuditConfig = AuditConfig()
    """Records of the audit log outside the database."""
    visibility_timeout_s: Fixed[Annotated[int, msgspec.Meta(ge=60, le=86400)]] = 3600
    """Time after which an unfinished task is given to another worker. It must be longer than any task takes."""


def ready_file(data: DataFolder, queues: Iterable[Queue]) -> Path:
    """The file that exists while a worker of these queues accepts tasks; `up` waits for it."""
    return data.run / f"worker-{'-'.join(sorted(queue.value for queue in queues))}.ready"
