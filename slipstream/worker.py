"""The background worker: Celery on Valkey, one process, its schedule inside. Composes the tasks of the packages.

Tasks must bear being run twice: they are acknowledged after the work, and every worker carries the schedule.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from celery import Celery, signals
from celery.beat import EmbeddedService, Scheduler

from gateway.admin import audit_tasks
from gateway.admin import tasks as admin_tasks
from gateway.metering import tasks
from slipstream.settings import Settings


def create_app(settings: Settings) -> Celery:
    """The Celery application of this deployment. Connects to nothing."""
    app = Celery("slipstream", broker=broker_url(settings.valkey_url))
    app.conf.update(
        broker_connection_retry_on_startup=True,
        broker_connection_max_retries=None,  # Valkey may be away for long; the worker waits rather than dies
        broker_transport_options={
            "visibility_timeout": settings.worker.visibility_timeout_s,
            "global_keyprefix": "slipstream-worker:",
        },
        task_acks_late=True,
        task_reject_on_worker_lost=True,
        task_ignore_result=True,
        worker_prefetch_multiplier=1,
        worker_hijack_root_logger=False,
        worker_cancel_long_running_tasks_on_connection_loss=False,
        enable_utc=True,
        beat_max_loop_interval=5,
        beat_schedule={
            **tasks.schedule(settings.worker.ledger, settings.worker.rollup_every_s),
            **admin_tasks.schedule(),
            **audit_tasks.schedule(settings.worker.audit),
        },
    )
    tasks.add_tasks(app, settings.database_url, settings.observer_keys, settings.worker.ledger)
    admin_tasks.add_tasks(app, settings.database_url, lambda: settings.pepper, settings.gateway.admin.webhooks)
    audit_tasks.add_tasks(app, settings.database_url, settings.audit_heads)
    return app


def broker_url(valkey_url: str) -> str:
    """Celery's spelling of a Valkey URL."""
    return f"redis+socket://{valkey_url.removeprefix('unix://')}" if valkey_url.startswith("unix://") else valkey_url


def ready_file(settings: Settings) -> Path:
    """Exists while a worker takes tasks; `up` waits for it."""
    return settings.data.run / "worker.ready"


def main(settings: Settings) -> None:
    """Run until SIGTERM or SIGINT. Raises ConfigError when an engine key that the settings name cannot be had."""
    settings.observer_keys()
    app = create_app(settings)
    # A thread, not Celery's usual second process, which would outlive a killed worker.
    # In memory, not Celery's usual file: a run too many is harmless, and every start begins with one.
    beat = EmbeddedService(app, thread=True, scheduler_cls=Scheduler)
    ready = ready_file(settings)

    def on_ready(**_: Any) -> None:
        ready.touch()
        for name in (*tasks.AT_START, *audit_tasks.AT_START):
            app.send_task(name)
        beat.start()

    def on_shutdown(**_: Any) -> None:
        ready.unlink(missing_ok=True)
        beat.stop()

    signals.worker_ready.connect(on_ready, weak=False)
    signals.worker_shutting_down.connect(on_shutdown, weak=False)
    # One process that works on one task at a time: about half the memory of a pool, and nothing to orphan.
    app.Worker(pool="solo", concurrency=1, without_gossip=True, without_mingle=True, without_heartbeat=True).start()
