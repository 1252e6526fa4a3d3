"""The runners of batches and background responses with this deployment's file store and gateway URL."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

from slipstream.evals import trusted
from slipstream.processes import public_url
from slipstream.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Callable

    from control.batches.metrics import BatchMetrics
    from control.batches.runner import BatchRunner
    from control.batches.store import FileStore
    from control.responses.metrics import ResponseMetrics
    from control.responses.runner import ResponseRunner


def batch_store(settings: Settings) -> Callable[[], FileStore]:
    """A function that opens the file store. It raises ConfigError if it cannot."""
    from control.batches.store import store_of

    return functools.partial(store_of, settings.batches, settings.data.path)


def batch_runner(settings: Settings, metrics: BatchMetrics | None) -> BatchRunner:
    """The batch runner of this deployment. metrics: None to record none. Raises ConfigError if the certificates cannot
    be read."""
    from control.batches.runner import BatchRunner

    return BatchRunner(
        settings.database_url,
        _url(settings),
        lambda: settings.pepper,
        batch_store(settings),
        metrics,
        trusted(settings),
    )


def response_runner(settings: Settings, metrics: ResponseMetrics | None) -> ResponseRunner:
    """The runner of background responses. Parameters and errors: see `batch_runner`."""
    from control.responses.runner import ResponseRunner

    return ResponseRunner(settings.database_url, _url(settings), lambda: settings.pepper, metrics, trusted(settings))


def _url(settings: Settings) -> str:
    return settings.evals.url or public_url(settings)
