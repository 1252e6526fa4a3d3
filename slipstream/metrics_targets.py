"""The metrics addresses of `up`'s processes, as a list for Prometheus (`file_sd_configs`)."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import msgspec

from contracts.metrics import MetricsConfig
from infra.local.ports import Ports
from infra.local.private import folder_error, replace_file
from slipstream.settings import Settings, reachable


class Target(msgspec.Struct, frozen=True):
    """One process. kind: its section of the settings. name: the name that `slipstream status` shows."""

    kind: str
    name: str
    host: str
    port: int


def targets_of(settings: Settings, names: Mapping[str, Sequence[str]], ports: Ports) -> tuple[Target, ...]:
    """A port for each process, which stays the same while `up` runs, even over restarts. names: processes by kind."""
    targets = []
    for kind, members in names.items():
        config: MetricsConfig = getattr(settings, kind).metrics
        for number, name in enumerate(members):
            port = config.port + number if config.port else ports.pick(f"{name} metrics")
            targets.append(Target(kind, name, reachable(config.host), port))
    return tuple(targets)


def addresses(file: Path) -> dict[str, str]:
    """`host:port` by process, from the list in this file; empty if there is none."""
    try:
        listed = msgspec.json.decode(file.read_bytes(), type=list[_Listed])
    except (OSError, msgspec.DecodeError):
        return {}
    return {each.labels["instance"]: each.targets[0] for each in listed}


class _Listed(msgspec.Struct, frozen=True):
    targets: list[str]
    labels: dict[str, str]


@contextlib.contextmanager
def listed(targets: Sequence[Target], file: Path) -> Iterator[None]:
    """Keep the list in `file` while entered. Prometheus may read it at any time.

    Raises ConfigError if it cannot be written.
    """
    entries = [
        {
            "targets": [f"[{target.host}]:{target.port}" if ":" in target.host else f"{target.host}:{target.port}"],
            "labels": {"job": f"slipstream-{target.kind}", "instance": target.name},
        }
        for target in targets
    ]
    try:
        replace_file(file, msgspec.json.format(msgspec.json.encode(entries)), mode=0o644)
    except OSError as error:
        raise folder_error(file, error) from None
    try:
        yield
    finally:
        with contextlib.suppress(OSError):  # absent, or on a disk that became read-only: the next start writes it again
            file.unlink()
