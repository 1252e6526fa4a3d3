"""Runs attempts that no client waits for: prompts computed ahead, and copies to a release's candidate."""

from __future__ import annotations

from contracts.errors import SlipstreamError
from contracts.phases import Phase
from gateway.serving.attempt import Attempt
from gateway.serving.collaborators import Router, UsageJournal
from gateway.serving.generator import Generator


class BackgroundAttempts:
    """Runs each on the idle replica that the attempt names, or not at all; in the journal, and on no bill."""

    def __init__(self, journal: UsageJournal, router: Router, generator: Generator) -> None:
        self._journal = journal
        self._router = router
        self._generator = generator

    async def run(self, attempt: Attempt) -> None:
        """Run one attempt. A refusal by the router leaves no record. Raises SlipstreamError."""
        lease = await self._router.acquire(attempt.lease_request(deadline_s=0.0))
        attempt.request.clock.end(Phase.ROUTE)
        attempt.granted_s = attempt.request.clock.total_s
        try:
            self._journal.opened(attempt.opened)
            self._journal.placed(attempt.placed(lease.engine))
            await self._generator.generate(attempt, lease)
            attempt.status = 200
        except SlipstreamError as error:
            attempt.failed(error)
            attempt.error_code, attempt.status = error.code, attempt.request.wire_format.error_status(error)
            raise
        finally:
            self._router.release(attempt.lease_end(lease.lease_id))
            await self._journal.closed(attempt.closed())
