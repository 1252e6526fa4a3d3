"""The data folder: the path of each file, and its folders and secrets, made with the right modes before any start."""

from __future__ import annotations

import hashlib
import os
import tempfile
from pathlib import Path

from contracts.errors import ConfigError
from infra.local.private import claim_folder, folder_error, secret_text

SOCKET_PATH_BYTES = 107
"""Longest Unix socket path that Linux takes (macOS: 103, which still has room for the longest name below)."""
LONGEST_SOCKET_NAME = "postgres/.s.PGSQL.5432.lock.x"
APPLICATION_ROLE = "slipstream_app"
"""The role of gateways, workers and commands in the embedded PostgreSQL. It owns nothing."""
PATH_BYTES = 900
"""PostgreSQL takes data paths below 1,024 bytes; the rest is for the names below it."""


class DataFolder:
    """The paths below one data folder. Constructing it touches nothing; `prepare` makes what is missing."""

    def __init__(self, path: Path) -> None:
        self.path = Path(os.path.abspath(path))  # noqa: PTH100  resolve() would follow the user's own links
        self.token_file = self.path / "token"
        self.router_token_file = self.path / "router.token"
        self.reader_token_file = self.path / "router.reader.token"
        self.metrics_token_file = self.path / "engine.metrics.token"
        self.pepper_file = self.path / "pepper"
        self.evals_key_file = self.path / "evals.key"
        self.postgres = self.path / "postgres"
        self.valkey = self.path / "valkey"
        self.journal = self.path / "journal"
        self.logs = self.path / "logs"
        self.models = self.path / "models"
        self.prometheus_targets = self.path / "prometheus" / "targets.json"
        self.lock_file = self.path / "supervisor.lock"
        self.ports_file = self.path / "ports.json"
        self.run = self._run()
        self.control_socket = self.run / "supervisor.sock"
        self.valkey_socket = self.run / "valkey.sock"
        self.router_socket = self.run / "router.sock"
        self.postgres_socket = self.run / "postgres"
        self.engine_files = self.run / "engines"
        self.settings_file = self.run / "settings.toml"

    @property
    def secret_files(self) -> tuple[Path, ...]:
        """The file of each secret of the deployment."""
        return (
            self.token_file,
            self.router_token_file,
            self.reader_token_file,
            self.metrics_token_file,
            self.pepper_file,
        )

    @property
    def database_url(self) -> str:
        """URL of the embedded PostgreSQL, for the application."""
        return f"postgresql://{APPLICATION_ROLE}@/slipstream?host={self.postgres_socket}"

    @property
    def migration_database_url(self) -> str:
        """URL of the embedded PostgreSQL, for the role that owns its tables."""
        return f"postgresql://slipstream@/slipstream?host={self.postgres_socket}"

    @property
    def valkey_url(self) -> str:
        """URL of the embedded Valkey."""
        return f"unix://{self.valkey_socket}"

    def log(self, name: str) -> Path:
        """The log file of the process called `name`."""
        return self.logs / f"{name}.log"

    def engine_settings_file(self, name: str) -> Path:
        """The settings that `up` decided for the embedded engine called `name`."""
        return self.run / f"{name}.toml"

    def engine_script(self, name: str) -> Path:
        """The script that starts the engine called `name`, which is another project's."""
        return self.run / f"{name}.sh"

    def make(self) -> None:
        """Make the folder itself if it is absent. An existing folder is not changed: a deployment may mount its
        secrets read-only. Raises ConfigError with one sentence if it cannot be made."""
        self._require_usable_path()
        if not self.path.is_dir():
            claim_folder(self.path)

    def prepare(self) -> None:
        """Make the folders and secrets. Raises ConfigError with one sentence if the path cannot be used."""
        self._require_usable_path()
        claim_folder(self.path)
        self._require_writable()
        for folder in (self.journal, self.logs, self.prometheus_targets.parent, self.valkey, self.run):
            claim_folder(folder)
        for secret in self.secret_files:
            secret_text(secret)

    def _require_usable_path(self) -> None:
        try:
            str(self.path).encode()
        except UnicodeEncodeError:
            raise ConfigError(
                f"data folder: the path {os.fsencode(self.path)!r} is not valid UTF-8; choose a UTF-8 path with --data"
            ) from None
        if len(os.fsencode(self.path)) > PATH_BYTES:
            raise ConfigError(
                f"data folder: its path has {len(os.fsencode(self.path))} bytes and at most {PATH_BYTES} work; "
                "choose a shorter one with --data"
            )

    def _run(self) -> Path:
        below = self.path / "run"
        if len(os.fsencode(below / LONGEST_SOCKET_NAME)) <= SOCKET_PATH_BYTES:
            return below
        key = hashlib.sha256(os.fsencode(self.path)).hexdigest()[:10]
        return Path(tempfile.gettempdir()) / f"slipstream-{os.geteuid()}-{key}"

    def _require_writable(self) -> None:
        probe = self.path / f".writable-{os.getpid()}"
        try:
            probe.touch()
            probe.unlink()
        except OSError as error:
            raise folder_error(self.path, error) from None
