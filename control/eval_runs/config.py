"""Settings of evals: when they run, how much is asked, and whom."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec

from contracts.errors import ConfigError
from contracts.fixed import Fixed
from contracts.generation import Tier
from evals.sandbox.isolation import Isolation

if TYPE_CHECKING:  # every command reads the settings, and few need Celery or a slice
    from celery.schedules import crontab

    from evals.slices.catalogue import Catalogue


DEFAULT_SCHEDULE = "0 2 * * *"


class EvalsConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Runs of evals, and the scheduled nights."""

    schedule: str = DEFAULT_SCHEDULE
    """Time of the nightly evals of all models in crontab format (minute, hour, day of the month, month, day of the
    week), in UTC. Empty: never. A night is skipped if no worker runs at that moment, and during a deployment's first
    six hours."""
    models: tuple[str, ...] = ()
    """Models of the nightly evals. Empty: all except those on pools of the driver `openai`, whose engines may belong to
    another provider and cost money."""
    slices: tuple[str, ...] = ()
    """Slices of the nightly evals. A model gets those that fit its tier. Empty: all."""
    items: Annotated[int, msgspec.Meta(ge=1, le=100_000)] = 40
    """Items of each slice per night. Four consecutive nights use different items; the fifth repeats the first night's.
    """
    automatic_rollback: bool = False
    """If a night finds a model worse than its previous version, undo the promotion that changed it, if the promotion is
    no more than 14 nights old. Otherwise, only propose the rollback."""
    slices_folder: str = ""
    """Folder with question files, each of which becomes a slice: published sets and your own
    (docs/guides/add-a-slice.md). Empty: only generated questions."""
    code_isolation: Isolation = Isolation.NAMESPACES
    """Isolation of programs written by models: answers of the slices `code` and `code_tests`, and of question files
    with tests. `process` is for machines without namespaces, on which such slices are otherwise refused. With it, such
    a program can read all files of the worker's account."""
    long_text_tokenizer: str = ""
    """Folder of the model whose tokenizer measures long texts (RULER) for `evals.long_text_lengths`. Empty: long texts
    are not used."""
    long_text_lengths: tuple[Annotated[int, msgspec.Meta(ge=500, le=1_000_000)], ...] = (1000, 4000)
    """Lengths of long texts in tokens, including question and answer."""
    url: str = ""
    """URL of the gateway to query, such as `https://api.example.com`. Workers also send batches' lines and background
    responses there. Empty: this machine, with `gateway.host` and `gateway.port`."""
    ca_file: str = ""
    """PEM file of certificates with which the gateway's certificate is verified. Empty: those that the machine trusts
    and, without `url`, the gateway's own (`gateway.tls.certificate_file`)."""
    api_key_file: str = ""
    """File with an inference key that has the scope `evals`. Empty: a worker creates a key and keeps it in `evals.key`
    in the data folder."""
    at_once: Annotated[int, msgspec.Meta(ge=1, le=256)] = 8
    """Maximum number of concurrent items of one worker."""
    answer_timeout_s: Fixed[Annotated[float, msgspec.Meta(gt=0, le=3600)]] = 300.0
    """Time limit of one answer, including the wait for an engine."""
    patience_s: Fixed[Annotated[float, msgspec.Meta(gt=0, le=86_400)]] = 900.0
    """How long an item is retried while the gateway or its engines are unavailable, and storing is retried while the
    database is unreachable. After that, the run fails."""
    lease_s: Annotated[float, msgspec.Meta(ge=2, le=600)] = 30.0
    """How long the run of a killed worker stays leased."""

    def check(self) -> None:
        """Raise ConfigError for an invalid schedule, or an unknown slice."""
        # the check imports Celery, which otherwise only the worker needs
        if self.schedule not in ("", DEFAULT_SCHEDULE):
            self._check_schedule()
        if self.slices:
            self._check_slices()

    def _check_schedule(self) -> None:
        from celery.schedules import ParseException

        try:
            self.crontab()
        except (ParseException, ValueError) as error:
            raise ConfigError(
                f"evals.schedule: {self.schedule!r} is no crontab time ({error}); write five fields in UTC, such as "
                "'0 2 * * *' for two o'clock every night, or leave it empty for never",
                param="evals.schedule",
            ) from None

    def _check_slices(self) -> None:
        if self.slices_folder or self.long_text_tokenizer:
            return  # only runs read those files; every command reads the settings
        self.chosen()

    def catalogue(self) -> Catalogue:
        """All slices; the files of `slices_folder` are read once in a process. Raises ConfigError."""
        return _read(self)

    def chosen_for(self, tier: Tier) -> tuple[str, ...]:
        """Names of the scheduled slices that fit a tier; there may be none. Raises ConfigError like `chosen`."""
        fitting = self.catalogue().names_for(tier)
        return tuple(name for name in self.chosen() if name in fitting)

    def chosen(self) -> tuple[str, ...]:
        """Names of the scheduled slices. Raises ConfigError for an unknown one."""
        known = self.catalogue().names
        for name in self.slices:
            if name not in known:
                raise ConfigError(
                    f"evals.slices: there is no slice {name!r}; slices: {', '.join(known)}", param="evals.slices"
                )
        return self.slices or known

    def crontab(self) -> crontab | None:
        """The schedule; None without one. Raises Celery's errors for an invalid one."""
        from celery.schedules import crontab

        return crontab.from_string(self.schedule) if self.schedule else None


@functools.lru_cache(maxsize=1)
def _read(config: EvalsConfig) -> Catalogue:
    from evals.sandbox.sandbox import Sandbox
    from evals.slices.catalogue import Catalogue
    from evals.slices.tokens import FolderTokenizer

    tokenizer = FolderTokenizer(Path(config.long_text_tokenizer)) if config.long_text_tokenizer else None
    folder = Path(config.slices_folder) if config.slices_folder else None
    return Catalogue(folder, Sandbox(config.code_isolation), tokenizer, config.long_text_lengths)
