"""Decides which organization's prompt is tokenized next: organizations take turns, with one prompt at a time and a
limit on each one's queue.

`FairExecutor` has the threads.
"""

from __future__ import annotations

from typing import Generic, TypeVar

from contracts.errors import RateLimited

RETRY_AFTER_S = 1.0
JobT = TypeVar("JobT")


class _Tenant(Generic[JobT]):
    """The jobs of one tenant."""

    def __init__(self) -> None:
        self.waiting: dict[JobT, int] = {}
        """Bytes of each job, oldest first."""
        self.running_bytes: int | None = None
        """Bytes of the running job; None if no job runs."""

    @property
    def jobs(self) -> int:
        return len(self.waiting) + (self.running_bytes is not None)

    @property
    def bytes(self) -> int:
        return sum(self.waiting.values()) + (self.running_bytes or 0)


class FairQueue(Generic[JobT]):
    """Jobs of many tenants. Between two jobs of one tenant, every other waiting tenant gets a turn."""

    def __init__(self, tenant_jobs: int, tenant_bytes: int) -> None:
        """Limits on one tenant's jobs, running or waiting."""
        self._tenant_jobs = tenant_jobs
        self._tenant_bytes = tenant_bytes
        self._tenants: dict[str, _Tenant[JobT]] = {}
        self._ready: dict[str, None] = {}
        """Tenants with a waiting job and no running one, in the order of their turns."""

    def put(self, tenant: str, job: JobT, size_bytes: int) -> None:
        """Add a job. Raises RateLimited if the tenant has reached its limit; a single job is always accepted."""
        own = self._tenants.get(tenant) or _Tenant()
        if own.jobs >= self._tenant_jobs or (own.jobs and own.bytes + size_bytes > self._tenant_bytes):
            raise RateLimited(
                f"{own.jobs} prompts of your organization, {own.bytes} bytes, wait to be tokenized on this instance, "
                f"and this one has {size_bytes} bytes; at most {self._tenant_jobs} prompts and {self._tenant_bytes} "
                "bytes may wait. Send fewer at a time.",
                retry_after_s=RETRY_AFTER_S,
            )
        self._tenants[tenant] = own
        own.waiting[job] = size_bytes
        if own.running_bytes is None:
            self._ready.setdefault(tenant)

    def take(self) -> JobT | None:
        """The next job, or None if every waiting tenant has a running job. A tenant's next job waits for `finish`."""
        tenant = next(iter(self._ready), None)
        if tenant is None:
            return None
        del self._ready[tenant]
        own = self._tenants[tenant]
        job = next(iter(own.waiting))
        own.running_bytes = own.waiting.pop(job)
        return job

    def finish(self, tenant: str) -> None:
        """End the tenant's running job; its next job waits until the other tenants have had their turns."""
        own = self._tenants[tenant]
        own.running_bytes = None
        if own.waiting:
            self._ready[tenant] = None
        else:
            del self._tenants[tenant]

    def drop(self, tenant: str, job: JobT) -> None:
        """Remove a job whose result is no longer needed. A running job stays until `finish`."""
        own = self._tenants.get(tenant)
        if own is None or own.waiting.pop(job, None) is None or own.waiting:
            return
        self._ready.pop(tenant, None)
        if own.running_bytes is None:
            del self._tenants[tenant]

    def clear(self) -> list[JobT]:
        """Remove and return all waiting jobs."""
        jobs = [job for own in self._tenants.values() for job in own.waiting]
        for own in self._tenants.values():
            own.waiting.clear()
        self._tenants = {tenant: own for tenant, own in self._tenants.items() if own.running_bytes is not None}
        self._ready.clear()
        return jobs
