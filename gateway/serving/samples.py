"""Passes customers' requests to the stores that sample them: prefixes, and texts where organizations allow it."""

from __future__ import annotations

from gateway.http.response import ResponseWriter
from gateway.serving.attempt import Attempt
from gateway.serving.collaborators import CompletionTexts, PrefixLog
from gateway.serving.observers import RequestObserver
from gateway.serving.request import InferenceRequest


class PrefixSampling(RequestObserver):
    """Samples the prompts that engines received."""

    def __init__(self, prefixes: PrefixLog) -> None:
        self._prefixes = prefixes

    def ended(self, request: InferenceRequest, response: ResponseWriter) -> None:
        """Sample the request's prompt."""
        if request.ran and request.purpose is None:
            stored = request.key.store_prompts
            self._prefixes.add(
                request.request_id, request.caller, request.endpoint, request.prepared, texts_stored=stored
            )


class CompletionSampling(RequestObserver):
    """Stores the texts of completions for organizations that allow it."""

    def __init__(self, texts: CompletionTexts) -> None:
        self._texts = texts

    def answered(self, attempt: Attempt) -> None:
        """Store the gap and the text that filled it."""
        request = attempt.request
        prepared = request.prepared
        if request.key.store_prompts and prepared.gap is not None and not prepared.warm_up:
            self._texts.add(request.request_id, request.caller, prepared.gap, attempt.transcoder.text)
