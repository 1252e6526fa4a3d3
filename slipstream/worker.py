"""The background worker: Celery on Valkey with an embedded schedule. Composes the tasks of the packages.

Each queue can have its own process: `upkeep` for the ledger and administration, `webhooks` for requests to customers'
servers, `releases`, which must move within seconds, and `evals` and `batches`, whose work takes hours. One process may
serve several queues: tasks that must run within seconds do not wait for upkeep (`prompt_tasks.py`). Tasks must tolerate
a second run: they are acknowledged after the work, and every worker has the schedule of the queues that it serves.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from celery import Celery
from prometheus_client import CollectorRegistry

from contracts.loop_thread import LoopThread
from contracts.metrics import metrics_server
from control.audit import tasks as audit_tasks
from control.batches import tasks as batch_tasks
from control.batches.metrics import BatchMetrics
from control.billing import tasks
from control.billing.engine_metrics import EngineCounterMetrics
from control.completions import tasks as completion_tasks
from control.eval_runs import tasks as evals_tasks
from control.eval_runs.night_metrics import NightMetrics
from control.prefixes import tasks as prefix_tasks
from control.prefixes.metrics import PrefixMetrics
from control.releases.rollout import retention as evidence_retention
from control.releases.rollout import tasks as release_tasks
from control.releases.rollout.metrics import ReleaseMetrics
from control.releases.rollout.tasks import ReleaseTask
from control.responses.metrics import ResponseMetrics
from control.shadow import tasks as shadow_tasks
from control.slo import tasks as slo_tasks
from control.slo.metrics import SloMetrics
from control.webhooks import tasks as admin_tasks
from control.webhooks.delivery_thread import DeliveryThread
from control.webhooks.metrics import WebhookMetrics
from infra.local.private import claim_folder
from slipstream.batches import batch_runner, batch_store, response_runner
from slipstream.evals import evals_runner, night_planner
from slipstream.prompt_tasks import PromptTasks
from slipstream.settings import Settings
from slipstream.worker_config import Queue, ready_file
from slipstream.worker_metrics import WorkerMetrics
from slipstream.worker_process import WorkerProcess

QUEUE_OF = {
    admin_tasks.DELIVER: Queue.WEBHOOKS,
    release_tasks.ADVANCE: Queue.RELEASES,
    evals_tasks.WORK: Queue.EVALS,
    evals_tasks.QUEUE_NIGHT: Queue.EVALS,
    batch_tasks.WORK: Queue.BATCHES,
    batch_tasks.SWEEP: Queue.BATCHES,
}
"""The queues of tasks; every other task is upkeep."""
PROMPT = frozenset({admin_tasks.DELIVER, release_tasks.ADVANCE, evals_tasks.WORK, batch_tasks.WORK})
"""Tasks that run in their own thread (`PromptTasks`)."""
BATCHES_JOIN_S = 5.0
EVALS_JOIN_S = 5.0
"""Time for a run to return its items; the next worker gets the others when their lease ends."""


def create_app(
    settings: Settings,
    queues: Sequence[Queue],
    wake_delivery: Callable[[], None],
    wake_evals: Callable[[], None],
    wake_batches: Callable[[], None],
    registry: CollectorRegistry,
) -> Celery:
    """The Celery application of this deployment, with the schedule of these queues. Makes no connection.

    registry: for the metrics of its tasks.
    Raises ConfigError for settings that contradict each other.
    """
    app = Celery("slipstream", broker=broker_url(settings.valkey_url))
    app.conf.update(
        broker_connection_retry_on_startup=True,
        broker_connection_max_retries=None,  # Valkey may be down for a long time; the worker waits instead of ending
        broker_channel_error_retry=True,  # the same while Valkey answers but refuses writes because its disk is full
        broker_transport_options={
            "visibility_timeout": settings.worker.visibility_timeout_s,
            "global_keyprefix": "slipstream-worker:",
        },
        task_acks_late=True,
        task_reject_on_worker_lost=True,
        task_ignore_result=True,
        worker_prefetch_multiplier=1,
        worker_hijack_root_logger=False,
        worker_redirect_stdouts=False,  # the error of a failed start stays on its own line
        worker_cancel_long_running_tasks_on_connection_loss=False,
        enable_utc=True,
        task_default_queue=Queue.UPKEEP.value,
        task_routes={task: {"queue": queue.value} for task, queue in QUEUE_OF.items()},
        beat_max_loop_interval=5,
        # A worker that was down finds one waiting run, not one for each missed period.
        beat_schedule={
            task: {"task": task, "schedule": period_s, "options": {"expires": period_s}}
            for task, period_s in scheduled_s(settings, queues).items()
            if task not in PROMPT
        }
        | (evals_tasks.schedule(settings.evals) if Queue.EVALS in queues else {}),
    )
    engines = EngineCounterMetrics(registry)
    tasks.add_tasks(app, settings.database_url, settings.observer_keys, settings.worker.ledger, engines)
    webhooks = settings.gateway.admin.webhooks
    admin_tasks.add_tasks(app, settings.database_url, lambda: settings.pepper, webhooks, wake_delivery)
    audit_tasks.add_tasks(app, settings.database_url, settings.audit_heads)
    evals_tasks.add_tasks(app, settings.database_url, night_planner(settings), wake_evals)
    batch_tasks.add_tasks(app, settings.database_url, batch_store(settings), wake_batches)
    if Queue.UPKEEP in queues:
        traces_days = settings.worker.ledger.trace_retention_days
        slo = slo_tasks.SloUpkeep(
            settings.database_url, settings.slo, SloMetrics(registry), trace_retention_days=traces_days
        )
        slo_tasks.add_tasks(app, slo)
        prefix_tasks.add_tasks(app, settings.database_url, settings.worker.prefixes, PrefixMetrics(registry))
        completion_tasks.add_tasks(
            app, settings.database_url, settings.worker.completions, trace_retention_days=traces_days
        )
        shadow_tasks.add_tasks(app, settings.database_url, settings.worker.shadow)
        evidence_retention.add_tasks(app, settings.database_url, settings.worker.evidence)
    if Queue.RELEASES in queues:
        metrics = ReleaseMetrics(registry)
        release_tasks.add_tasks(app, ReleaseTask(settings.database_url, settings.worker.releases, metrics))
    return app


def scheduled_s(settings: Settings, queues: Sequence[Queue]) -> dict[str, float]:
    """The period in seconds of each task of these queues, by name."""
    periods_s = {
        **tasks.periods_s(settings.worker.ledger, settings.worker.roll_up_every_s),
        **slo_tasks.periods_s(settings.slo),
        **prefix_tasks.periods_s(settings.worker.prefixes),
        **completion_tasks.periods_s(settings.worker.completions),
        **shadow_tasks.PERIODS_S,
        **evidence_retention.PERIODS_S,
        **admin_tasks.PERIODS_S,
        **evals_tasks.PERIODS_S,
        **batch_tasks.PERIODS_S,
        **release_tasks.periods_s(settings.worker.releases),
        audit_tasks.NOTE_HEAD: settings.worker.audit.heads_every_s,
    }
    return {task: each_s for task, each_s in periods_s.items() if QUEUE_OF.get(task, Queue.UPKEEP) in queues}


def broker_url(valkey_url: str) -> str:
    """A Valkey URL in Celery's form."""
    return f"redis+socket://{valkey_url.removeprefix('unix://')}" if valkey_url.startswith("unix://") else valkey_url


def main(settings: Settings, queues: Sequence[Queue] = tuple(Queue)) -> None:
    """Serve these queues until SIGTERM or SIGINT. Raises ConfigError, also if an engine key of the settings cannot be
    read, and ServiceError if the work cannot begin."""
    claim_folder(settings.data.run)
    upkeep = Queue.UPKEEP in queues
    if upkeep:
        settings.observer_keys()
    registry = CollectorRegistry()
    metrics = WebhookMetrics(registry) if Queue.WEBHOOKS in queues else None
    delivery = DeliveryThread(settings.database_url, lambda: settings.pepper, settings.gateway.admin.webhooks, metrics)
    if Queue.EVALS in queues:
        settings.evals.chosen()  # a file of questions that cannot be read stops the start
    nights = NightMetrics(registry) if Queue.EVALS in queues else None
    runner = evals_runner(settings, night_planner(settings), nights.show if nights else lambda found: None)
    evals = LoopThread("evals", runner.run, EVALS_JOIN_S)
    batch_metrics = BatchMetrics(registry) if Queue.BATCHES in queues else None
    batches = LoopThread("batches", batch_runner(settings, batch_metrics).run, BATCHES_JOIN_S)
    response_metrics = ResponseMetrics(registry) if Queue.BATCHES in queues else None
    responses = LoopThread("responses", response_runner(settings, response_metrics).run, BATCHES_JOIN_S)

    def wake_batches() -> None:
        batches.wake()
        responses.wake()

    app = create_app(settings, queues, delivery.wake, evals.wake, wake_batches, registry)
    periods_s = scheduled_s(settings, queues)
    prompt = PromptTasks(app, {task: each_s for task, each_s in periods_s.items() if task in PROMPT})
    process = WorkerProcess(
        app,
        prompt,
        (delivery, evals, batches, responses),
        ready_file(settings.data, queues),
        at_start=(
            *tasks.AT_START,
            *slo_tasks.AT_START,
            *prefix_tasks.AT_START,
            *completion_tasks.AT_START,
            *audit_tasks.AT_START,
        )
        if upkeep
        else (),
        stop_timeout_s=settings.local.stop_timeout_s,
    )
    WorkerMetrics(registry).follow({*periods_s, *(each["task"] for each in app.conf.beat_schedule.values())})
    with metrics_server(registry, settings.worker.metrics, "worker.metrics"):
        process.run([queue.value for queue in queues])
