"""The path from a token to a billed row, limits, and scheduled work."""

from __future__ import annotations

from infra.grafana.board import Board, Panel, Query
from infra.grafana.promql import quantiles, rate

BOARD = Board(
    name="ledger",
    title="Slipstream: ledger",
    description="The path from a token to a billed row, limits, and scheduled work.",
    panels=(
        Panel(
            title="On the way to the ledger",
            description="Age of the oldest row that is durable in a journal and not yet in the ledger.",
            unit="s",
            queries=(Query("slipstream_ledger_oldest_seconds", "{{instance}}"),),
            alerts=("ledger/LedgerFallsBehind",),
        ),
        Panel(
            title="Backlog",
            description="Durable rows that are not yet in the ledger, and journal files that are not yet wholly"
            " shipped.",
            unit="short",
            queries=(
                Query("slipstream_ledger_backlog_rows", "{{instance}} rows"),
                Query("slipstream_journal_segments", "{{instance}} files"),
            ),
            alerts=("ledger/LedgerFallsBehind",),
        ),
        Panel(
            title="Rows",
            description="Rows a second that are new in the ledger, and tries to ship a batch that failed.",
            unit="ops",
            queries=(
                rate("slipstream_ledger_rows_total", legend="new"),
                rate("slipstream_ledger_errors_total", legend="failed tries"),
            ),
            alerts=("ledger/LedgerFallsBehind",),
        ),
        Panel(
            title="Journal",
            description="1 while a gateway's journal can be written; at 0 it admits nothing.",
            unit="short",
            queries=(Query("slipstream_journal_healthy", "{{instance}}"),),
            alerts=("ledger/JournalCannotBeWritten",),
        ),
        Panel(
            title="Time to disk",
            description="Time of one group commit of a journal: write and fdatasync. Every answer's end waits for one.",
            unit="s",
            queries=quantiles("slipstream_journal_commit_seconds", of=(0.5, 0.99)),
        ),
        Panel(
            title="Rows out of the ordinary",
            description="Rows since their gateway started: shipped twice and counted once, recorded as not billed"
            " because another attempt is, refused by PostgreSQL; and damaged files.",
            unit="short",
            queries=(
                Query("sum(slipstream_ledger_duplicates_total)", "shipped twice"),
                Query("sum(slipstream_ledger_billed_twice_total)", "not billed twice"),
                Query("sum(slipstream_ledger_refused_total)", "refused"),
                Query("sum(slipstream_journal_damaged_segments_total)", "damaged files"),
            ),
            alerts=("ledger/LedgerRefusesRows", "ledger/JournalDamaged"),
        ),
        Panel(
            title="Recovered",
            description="Attempts that a crash had left open, by the outcome they were closed with, since the start.",
            unit="short",
            queries=(
                Query(
                    "sum by (outcome) (slipstream_recovered_attempts_total)", "{{outcome}}", "no gateway has crashed"
                ),
            ),
        ),
        Panel(
            title="Books",
            description="All 0 when engines, events and totals agree; anything else is a matter for the runbook.",
            unit="short",
            queries=(
                Query("max by (kind) (slipstream_ledger_drift_tokens)", "drift {{kind}}"),
                Query("max(slipstream_ledger_wrong_totals)", "wrong totals"),
            ),
            alerts=("ledger/EnginesAndLedgerDisagree",),
        ),
        Panel(
            title="Limits",
            description="Refused reservations a second, by the level and counter that refused.",
            unit="reqps",
            queries=(
                rate(
                    "slipstream_limits_decisions_total",
                    "level",
                    "counter",
                    where='counter!=""',
                    quiet="no limit was reached",
                ),
            ),
        ),
        Panel(
            title="How limits are enforced",
            description="0 exactly, in Valkey; 1 by each gateway's own share; 2 keys with limits are refused. And"
            " settlements that wait for Valkey.",
            unit="short",
            queries=(
                Query("slipstream_limits_mode", "{{instance}}"),
                Query("slipstream_limits_delayed_settlements", "{{instance}} waiting"),
            ),
            alerts=("limits/LimitsWithoutValkey", "limits/SettlementsAreDropped"),
        ),
        Panel(
            title="Time to reserve",
            description="Time to decide a reservation.",
            unit="s",
            queries=quantiles("slipstream_limits_reserve_seconds", of=(0.5, 0.99)),
            alerts=("limits/LimitsWithoutValkey",),
        ),
        Panel(
            title="Worker",
            description="Tasks that ended, a second, by name and how.",
            unit="ops",
            queries=(rate("slipstream_worker_tasks_total", "task", "state"),),
            alerts=("worker/WorkerIsStuck", "worker/WorkerTasksFail"),
        ),
        Panel(
            title="Time of tasks",
            description="95th percentile of the worker's tasks, by name.",
            unit="s",
            queries=quantiles("slipstream_worker_task_seconds", "task", of=(0.95,)),
            alerts=("worker/WorkerIsStuck",),
        ),
        Panel(
            title="Worse slices",
            description="Slices that the last night of evals found worse than before, by model and change.",
            unit="short",
            queries=(
                Query(
                    "slipstream_eval_night_slice_failed",
                    "{{model}} {{slice}} {{change}}",
                    quiet="no slice was found worse",
                ),
            ),
            alerts=("evals/NightlySliceIsWorse",),
        ),
        Panel(
            title="Webhooks",
            description="Tries to deliver a webhook, a second, by outcome.",
            unit="ops",
            queries=(rate("slipstream_webhook_attempts_total", "outcome"),),
            alerts=("worker/WebhooksFail",),
        ),
        Panel(
            title="Dropped",
            description="What was not stored because PostgreSQL was away for too long, a second: records of how"
            " requests went, and what editors reported. Usage is never dropped.",
            unit="ops",
            queries=(
                rate("slipstream_request_traces_dropped_total", legend="traces"),
                rate("slipstream_autocomplete_events_dropped_total", legend="reports of editors"),
            ),
            alerts=("worker/RequestTracesDropped",),
        ),
    ),
)
