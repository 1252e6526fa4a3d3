"""Copies some customers' requests to a model's candidate, once they have their response, and compares both sides.

A copy runs like a warm-up: alone on an idle replica of the candidate's pool or not at all, unbilled and without a
tenant in the journal. It ends when this gateway places any request on the same replica. It costs a customer only
memory, for the response's chunks until the request has ended. The choice of copied requests is random
(`gateway.shadow.sampling`), bounded (`gateway.shadow.allowance`), and secret.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import NamedTuple, Protocol

import msgspec

from contracts.dated_request_id import arrived_at_s
from contracts.errors import JournalUnavailable, Overloaded, RouterUnavailable, SlipstreamError
from contracts.generation import BACKGROUND_PRIORITY, Caller
from contracts.phases import Phase, PhaseClock
from contracts.prefix import PrefixChain
from contracts.replica_state import ReplicaState
from contracts.split import Side, side_of
from gateway.auth.key_record import KeyRecord
from gateway.http.response import ResponseWriter
from gateway.limits.levels import Levels
from gateway.serving.attempt import Attempt
from gateway.serving.background import IdleReplicaWork
from gateway.serving.idle_timeout import IdleTimeouts, Wait
from gateway.serving.nobody import nobody
from gateway.serving.request import Arrival, InferenceRequest
from gateway.shadow.allowance import ShadowAllowance
from gateway.shadow.answer import Answer, AnswerReader
from gateway.shadow.comparison import Served, asks_for_json, compare
from gateway.shadow.config import ShadowConfig
from gateway.shadow.metrics import CopyOutcome, ShadowMetrics
from gateway.shadow.pair import Outcome, Pair, PairTexts, answer_text, prompt_text
from gateway.shadow.sample import Sample
from gateway.shadow.sampling import ShadowSampler
from gateway.shadow.transcript import Transcript

logger = logging.getLogger(__name__)

ENDPOINT = "shadow"
"""Name of copies in journals and ledger."""
NO_ID = "00000000-0000-0000-0000-000000000000"
NOBODYS = KeyRecord(Caller(NO_ID, NO_ID, NO_ID), Levels())
"""The key of copies, which have no tenant in journals, in the ledger and at the router. No tenant finds them among its
requests, and the router counts them as one organization, whose failures alone open no breaker."""
MAX_TOKENS = 2**31 - 1
"""Highest token count that the database can store; an engine may report any number."""
COPY_OUTCOMES: Mapping[Outcome, CopyOutcome] = {
    Outcome.ANSWERED: "answered",
    Outcome.FAILED: "failed",
    Outcome.LATE: "late",
    Outcome.LONG: "long",
}
"""Metric outcomes of copies that are not compared."""
LISTENED = 16
"""Requests whose answers are recorded at a time, for each copy that may run; one organization may have a quarter."""


class PairLog(Protocol):
    """`gateway.shadow.store.PairStore`."""

    def add(self, pair: Pair, texts: PairTexts | None) -> None:
        """Store a pair. texts: for reviewers; None if they are not kept. Never raises."""
        ...


class Shadow(NamedTuple):
    """The parts that copies need."""

    config: ShadowConfig
    sampler: ShadowSampler
    replicas: Callable[[], Sequence[ReplicaState]]
    """Returns every engine's state, as the router last reported it."""
    pairs: PairLog
    metrics: ShadowMetrics
    draw: Callable[[], float] = random.SystemRandom().random
    """Returns random numbers from 0 up to 1, for the choice of a replica and of pairs for review."""


class ShadowCopies(IdleReplicaWork[str]):
    """The copies of one gateway. compute: runs an attempt on an engine, with its journal records."""

    def __init__(
        self, compute: Callable[[Attempt], Awaitable[None]], idle_timeouts: IdleTimeouts, shadow: Shadow
    ) -> None:
        super().__init__()
        self._compute = compute
        self._idle_timeouts = idle_timeouts
        self._config = shadow.config
        self._sampler = shadow.sampler
        self._replicas = shadow.replicas
        self._pairs = shadow.pairs
        self._metrics = shadow.metrics
        self._draw = shadow.draw
        self._allowance = ShadowAllowance(shadow.config.per_minute)
        self._listened: Counter[str] = Counter()
        """Number of samples by organization."""

    def arrived(self, request: InferenceRequest) -> None:
        """Cancel copies if the request will go to the candidate, or begin to record its answer if it will be copied."""
        model, generation = request.target.model, request.generation
        canary = model.canary
        if canary is None or request.purpose is not None:
            return
        if not canary.shadow_share or canary.pool == model.pool or not self._config.at_once:
            return
        side = side_of(model, request.prepared.unit)
        if side is Side.CANDIDATE:
            self._give_way_of(canary.pool)  # before the request needs a slot, which may be a copy's
            return
        if side is Side.CONTROL or generation.choices > 1 or request.prepared.warm_up:
            return
        organization_id = request.caller.organization_id
        unit = self._sampler.unit(request.prepared.unit)
        if not self._sampler.samples(canary.shadow_share, model.name, canary.release, unit):
            return
        limit = LISTENED * self._config.at_once
        full = self._listened.total() >= limit or self._listened[organization_id] >= limit // 4
        if full or not self._allowance.open(organization_id):
            self._metrics.copied(request.model, "limited")
            return
        self._listened[organization_id] += 1
        request.sample = Sample(canary, unit, Transcript())

    def answered(self, attempt: Attempt) -> None:
        """Record that the first engine completed the response."""
        sample = attempt.request.sample
        if sample is not None and attempt.number == 0:
            sample.answered = True
            sample.pool = "" if attempt.engine is None else attempt.engine.pool
            sample.own_text = attempt.transcoder.text if attempt.engine is not None else None

    def failed(self, attempt: Attempt, error: SlipstreamError) -> None:
        """Record the first engine's failure: the copy shows whether the candidate fails, too."""
        sample = attempt.request.sample
        if sample is None or attempt.request.first is not None:
            return
        if attempt.number == 0 and attempt.engine is not None and _had_it(attempt, error):
            sample.error_code = error.code
            sample.pool = attempt.engine.pool

    def ended(self, request: InferenceRequest, response: ResponseWriter) -> None:
        """Start the copy of a request whose client has the whole response. Never raises."""
        sample = request.sample
        if sample is None:
            return
        organization_id = request.caller.organization_id
        self._listened[organization_id] -= 1
        if not self._listened[organization_id]:
            del self._listened[organization_id]
        request.sample = None
        answered = sample.answered and sample.transcript.whole and response.error_code is None
        known = answered or sample.error_code is not None
        if not known or request.superseded_by is not None or sample.pool in ("", sample.canary.pool):
            return
        if len(self._tasks) >= self._config.at_once or not self._allowance.open(organization_id):
            self._metrics.copied(request.model, "limited")
            return
        usable = [replica.id for replica in self._replicas() if replica.pool == sample.canary.pool and replica.usable]
        free = [replica_id for replica_id in usable if replica_id not in self._by_replica]
        if not free:
            self._metrics.copied(request.model, "busy")
            return
        self._allowance.take(organization_id)
        replica_id = free[int(self._draw() * len(free))]
        self._begin(replica_id, sample.canary.pool, self._run(request, sample, replica_id), "shadow")

    async def _run(self, served: InferenceRequest, sample: Sample, replica_id: str) -> None:
        outcome: CopyOutcome = "failed"
        try:
            outcome = await self._copy(served, sample, replica_id)
        except asyncio.CancelledError:
            outcome = "superseded"
        except (Overloaded, RouterUnavailable):
            outcome = "busy"
        except SlipstreamError as error:
            logger.info("request %s is not copied: %s", served.request_id, error)
        except Exception:
            logger.exception("the copy of request %s failed", served.request_id)
        finally:
            self._over(replica_id)
            self._metrics.copied(served.model, outcome)

    async def _copy(self, served: InferenceRequest, sample: Sample, replica_id: str) -> CopyOutcome:
        """Run the copy on the candidate, and record the outcome. Raises SlipstreamError if the candidate did not accept
        it."""
        baseline, failure = None, sample.error_code
        if failure is None:
            try:
                baseline = await _read(sample.transcript, sample.own_text)
            except SlipstreamError as error:  # the candidate's unreadable answer would be a failure, too
                failure = error.code
        copy, wait = self._copy_of(served), Wait()
        copy.pool = sample.canary.pool
        limit = asyncio.timeout(self._config.timeout_s)
        transcript = Transcript(lambda: limit.reschedule(asyncio.get_running_loop().time()))
        copy.sample = Sample(sample.canary, sample.unit, transcript)
        attempt = Attempt(copy, nobody(copy.request_id, wait), 0, idle_replica=replica_id)
        self._attempts[replica_id] = attempt
        self._idle_timeouts.add(wait)
        outcome, error_code = Outcome.COMPARED, None
        try:
            async with limit:
                await self._compute(attempt)
                await asyncio.sleep(0)  # if the end arrived with too much text, the limit ends it here
            candidate = await _read(transcript, attempt.transcoder.text)
        except asyncio.CancelledError:
            if attempt.engine is not None:
                self._pairs.add(self._pair(served, sample, Outcome.SUPERSEDED, None, failure), None)
            raise
        except TimeoutError:
            outcome = Outcome.LATE if transcript.whole else Outcome.LONG
        except SlipstreamError as error:
            if attempt.engine is None or not _had_it(attempt, error):
                raise
            logger.info("the copy of request %s at %s: %s", served.request_id, replica_id, error)
            outcome, error_code = Outcome.FAILED, error.code
        finally:
            self._idle_timeouts.remove(wait)
        if baseline is None and outcome is Outcome.COMPARED:
            outcome = Outcome.ANSWERED
        pair = self._pair(served, sample, outcome, error_code, failure)
        if baseline is None or outcome is not Outcome.COMPARED:
            self._pairs.add(pair, None)
            return COPY_OUTCOMES[outcome]
        copy.measurement = attempt.measured()
        comparison = compare(
            _served(served, baseline), _served(copy, candidate), json_asked=asks_for_json(served.generation)
        )
        texts = None if comparison.same_text else self._texts(served, baseline, candidate)
        self._pairs.add(msgspec.structs.replace(pair, comparison=comparison), texts)
        return "compared"

    def _copy_of(self, served: InferenceRequest) -> InferenceRequest:
        """The same request, without a tenant, at the lowest priority, with its own prefix cache."""
        arrival, prepared = Arrival(served.wire_format, {}), served.prepared
        generation = msgspec.structs.replace(
            served.generation,
            request_id=arrival.request_id,
            caller=NOBODYS.caller,
            priority=BACKGROUND_PRIORITY,
            cache_salt=self._sampler.cache_salt(served.generation.cache_salt),
        )
        # the router must not route other requests by copies' cache contents
        chain = PrefixChain(prepared.chain.kind, b"")
        prepared = msgspec.structs.replace(prepared, generation=generation, session="", unit=0, file=b"", chain=chain)
        copy = InferenceRequest(arrival, NOBODYS, served.target, prepared)
        copy.endpoint = ENDPOINT
        return copy

    def _pair(
        self, served: InferenceRequest, sample: Sample, outcome: Outcome, error_code: str | None, failure: str | None
    ) -> Pair:
        """failure: the error code of the customer's own engine."""
        sampling = served.generation.sampling
        return Pair(
            id=served.request_id,
            model=served.model,
            release=sample.canary.release,
            baseline_pool=sample.pool,
            candidate_pool=sample.canary.pool,
            unit=sample.unit,
            stage_share=sample.canary.share,
            prompt_tokens=served.measurement.prompt_tokens or 0,
            greedy=sampling.temperature == 0,
            outcome=outcome,
            error_code=error_code,
            baseline_error_code=failure,
        )

    def _texts(self, served: InferenceRequest, baseline: Answer, candidate: Answer) -> PairTexts | None:
        """The texts for reviewers, if the project allows reviews and the pair is drawn."""
        if not served.key.allow_reviews or self._draw() >= self._config.review_share:
            return None
        prompt = prompt_text(served.prepared)
        if prompt is None:
            return None
        asked_at = datetime.fromtimestamp(arrived_at_s(served.request_id) or 0.0, UTC)
        texts = prompt, answer_text(baseline), answer_text(candidate)
        return PairTexts(served.caller.project_id, asked_at, *texts)


def _had_it(attempt: Attempt, error: SlipstreamError) -> bool:
    """Whether the engine is at fault: not if it was full and refused the request, nor if the journal failed."""
    return not isinstance(error, JournalUnavailable) and not attempt.found_full


async def _read(transcript: Transcript, own_text: str | None) -> Answer:
    """Read the transcript in chunks, so that customers' requests get the event loop in between. Raises EngineFailed."""
    reader = AnswerReader()
    for chunk in transcript.pieces:
        reader.feed(chunk)
        await asyncio.sleep(0)
    return reader.answer(own_text)


def _served(request: InferenceRequest, answer: Answer) -> Served:
    measured = request.measurement
    return Served(
        answer,
        ttft_ms=_engine_ttft_ms(request.clock),
        tokens_per_s=1e3 / measured.tpot_ms if measured.tpot_ms else None,
        cached_tokens=min(measured.cached_tokens or 0, MAX_TOKENS),
        completion_tokens=min(measured.completion_tokens or 0, MAX_TOKENS),
    )


def _engine_ttft_ms(clock: PhaseClock) -> float | None:
    """Time from the lease to the first text, for a request with one attempt; None without text."""
    phases_s = clock.durations_s
    if Phase.FIRST_TOKEN not in phases_s:
        return None
    return round((phases_s.get(Phase.ENGINE, 0.0) + phases_s[Phase.FIRST_TOKEN]) * 1e3, 3)
