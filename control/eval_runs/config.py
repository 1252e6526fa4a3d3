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
    """Runs of evals, and the nights that are asked by themselves."""

    schedule: str = DEFAULT_SCHEDULE
    """Time of the nightly evals of every model: minute, hour, day of the month, month and day of the week, as in a
    crontab, in UTC. Empty: never. A night whose moment passes while no worker runs is left out, and so are those of a
    deployment's first six hours."""
    models: tuple[str, ...] = ()
    """Models that the schedule asks; empty: all but those on pools of the driver `openai`, whose engines may be another
    provider's and cost money."""
    slices: tuple[str, ...] = ()
    """Slices of the schedule, for each model those that fit its tier; empty: all."""
    items: Annotated[int, msgspec.Meta(ge=1, le=100_000)] = 40
    """Items of each slice per night. Four consecutive nights ask different ones; the fifth repeats the first's."""
    automatic_rollback: bool = False
    """A night that finds a model worse than its previous version undoes the promotion that changed it, if that is no
    more than 14 nights old. Otherwise the rollback is only proposed."""
    slices_folder: str = ""
    """Folder with files of questions, which become slices too: published sets and your own
    (docs/guides/add-a-slice.md). Empty: generated questions only."""
    code_isolation: Isolation = Isolation.NAMESPACES
    """Isolation of programs that models write: answers of the slices `code` and `code_tests`, and of question files
    with tests. `process` is for machines without namespaces, where such slices are refused otherwise: such a program
    can then read all files of the worker's account."""
    long_text_tokenizer: str = ""
    """Folder of a model by whose tokenizer long texts (RULER) are as long as `evals.long_text_lengths` says; empty:
    none are asked."""
    long_text_lengths: tuple[Annotated[int, msgspec.Meta(ge=500, le=1_000_000)], ...] = (1000, 4000)
    """Lengths of long texts in tokens, question and answer together."""
    url: str = ""
    """The gateway to ask, such as `https://api.example.com`; workers also send batches' lines and background responses
    there. Empty: the one
    that `gateway.host` and `gateway.port` name, on this machine."""
    ca_file: str = ""
    """Certificates that gateway's certificate is checked by, as PEM; empty: those the machine trusts, and the gateway's
    own (`gateway.tls.certificate_file`) where no `url` is set."""
    api_key_file: str = ""
    """File with the key to ask by: one with the scope `evals`. Empty: a worker makes a key and keeps it in
    `evals.key` in the data folder."""
    at_once: Annotated[int, msgspec.Meta(ge=1, le=256)] = 8
    """Most items in flight, of all that a worker has in hand."""
    answer_timeout_s: Fixed[Annotated[float, msgspec.Meta(gt=0, le=3600)]] = 300.0
    """Timeout of one answer, with its wait for an engine."""
    patience_s: Fixed[Annotated[float, msgspec.Meta(gt=0, le=86_400)]] = 900.0
    """How long an item is retried while the gateway or its engines are unavailable, and a store is retried while the
    database is away; then its run fails."""
    lease_s: Annotated[float, msgspec.Meta(ge=2, le=600)] = 30.0
    """How long a killed worker's run stays leased."""

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
