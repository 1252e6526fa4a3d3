"""Batches and responses in the background of this deployment: where files are, and whom a worker asks."""

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
    """Opens the store of files. It raises ConfigError where that cannot be."""
    from control.batches.store import store_of

    return functools.partial(store_of, settings.batches, settings.data.path)


def batch_runner(settings: Settings, metrics: BatchMetrics | None) -> BatchRunner:
    """The runner of this deployment. metrics: None: none are shown. Raises ConfigError for certificates that cannot be
    read."""
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
    """The runner of responses in the background. Parameters and errors: see `batch_runner`."""
    from control.responses.runner import ResponseRunner

    return ResponseRunner(settings.database_url, _url(settings), lambda: settings.pepper, metrics, trusted(settings))


def _url(settings: Settings) -> str:
    return settings.evals.url or public_url(settings)
