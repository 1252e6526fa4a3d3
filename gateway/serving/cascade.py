"""Decides which requests go to a small model first, prepares them for it, and counts the outcomes.

Cheap rules send requests straight to the large model. Only the remaining ones are rendered and tokenized a second time,
with the small model's template and tokenizer.
"""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable, Iterator
from typing import TYPE_CHECKING

from msgspec.structs import replace

from contracts.cascade import Cascade
from contracts.errors import Overloaded, RequestError
from contracts.generation import ChatPrompt
from gateway.observability.cascade_metrics import CascadeMetrics
from gateway.serving.first import First
from gateway.serving.queue_watch import QueueWatch
from gateway.wire.prepared import Prepared, Target

if TYPE_CHECKING:
    from gateway.serving.attempt import Attempt
    from gateway.serving.first_attempt import FirstAttempt
    from gateway.serving.model_catalog import ModelCatalog
    from gateway.serving.request import InferenceRequest

Prepare = Callable[[Target], Awaitable[Prepared]]
"""Prepares the same request for another model. Raises a RequestError if that model cannot serve it."""


class Wait:
    """A wait for an engine's slot. ended_s: its length in seconds as the router reported it; None if it did not."""

    ended_s: float | None = None


class Cascades:
    """The cascades of one gateway."""

    def __init__(self, catalog: ModelCatalog, metrics: CascadeMetrics) -> None:
        self._catalog = catalog
        self._metrics = metrics
        self._queues = QueueWatch()

    async def first(self, target: Target, prepared: Prepared, prepare: Prepare, *, measured: bool) -> First | None:
        """The small model's request; None if the large model serves it. measured: whether the request belongs to the
        deployment's evals, which use the cascade whenever its rules allow it, approved or not."""
        small, cascade = self._catalog.first_of(target), target.model.cascade
        if small is None or cascade is None:
            return None
        model = target.model.name
        if not measured:
            if not self._catalog.approved(target):
                self._metrics.asked(model, "unapproved")
                return None
            if cascade.when == "busy" and not self._queues.busy(model, cascade.busy_after_s):
                self._metrics.asked(model, "not_busy")
                return None
        if target.model.canary is not None or not eligible(prepared, cascade):
            self._metrics.asked(model, "rule")
            return None
        try:
            first = await prepare(small)
        except RequestError:  # too long for the small model, or not supported by its dialect
            self._metrics.asked(model, "rule")
            return None
        sampling = first.generation.sampling
        limit = min(sampling.max_tokens, prepared.generation.sampling.max_tokens, cascade.max_first_tokens)
        capped = limit < prepared.generation.sampling.max_tokens
        generation = replace(first.generation, sampling=replace(sampling, max_tokens=limit, logprobs=0))
        return First(cascade, small, replace(first, generation=generation), capped)

    def judged(self, request: InferenceRequest, attempt: FirstAttempt) -> None:
        """Record the end of a small model's attempt."""
        self._metrics.asked(request.model, "client_gone" if attempt.left else attempt.judgement)

    @contextlib.contextmanager
    def waiting(self, attempt: Attempt) -> Iterator[Wait]:
        """Watch the wait for an engine's slot, which shows whether a model with a cascade is busy."""
        cascade = attempt.target.model.cascade
        wait = Wait()
        if (
            cascade is None or attempt.request.purpose is not None
        ):  # requests at the lowest priority do not show how long others wait
            yield wait
            return
        model, lease_id = attempt.target.model.name, attempt.engine_request_id
        self._queues.began(model, lease_id)
        try:
            yield wait
        except Overloaded:
            wait.ended_s = float("inf")
            raise
        finally:
            self._queues.ended(model, lease_id, wait.ended_s)


def eligible(prepared: Prepared, cascade: Cascade) -> bool:
    """Whether the small model may try the request: a short enough conversation with one response in plain text. Tools,
    formats and probabilities need the large model, and token ids belong to its tokenizer."""
    generation, sampling = prepared.generation, prepared.generation.sampling
    prompt = generation.prompt
    if (
        not isinstance(prompt, ChatPrompt)
        or generation.choices > 1
        or prepared.prompt_tokens > cascade.max_prompt_tokens
    ):
        return False
    if prompt.tools or prompt.response_format is not None or prompt.reasoning_effort is not None:
        return False
    if sampling.engine_parameters:
        return False
    return sampling.logprobs is None and not sampling.logit_bias and not sampling.stop_ids
