"""Where each process of `up` shows its metrics, as a list for Prometheus (`file_sd_configs`)."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import msgspec

from contracts.metrics import MetricsConfig
from infra.local.ports import Ports
from infra.local.private import folder_error
from slipstream.settings import Settings, reachable


class Target(msgspec.Struct, frozen=True):
    """One process. kind: its section of the settings; name: as `slipstream status` shows it."""

    kind: str
    name: str
    host: str
    port: int


def targets_of(settings: Settings, names: Mapping[str, Sequence[str]], ports: Ports) -> tuple[Target, ...]:
    """A port for each process, the same as long as `up` runs, restarts included. names: of the processes, by kind."""
    targets = []
    for kind, members in names.items():
        config: MetricsConfig = getattr(settings, kind).metrics
        for number, name in enumerate(members):
            port = config.port + number if config.port else ports.pick(f"{name} metrics")
            targets.append(Target(kind, name, reachable(config.host), port))
    return tuple(targets)


def addresses(file: Path) -> dict[str, str]:
    """`host:port` by process, of the list in this file; empty where there is none."""
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
    """While entered, `file` holds the list; written aside and renamed, as Prometheus may read at any time.

    Raises ConfigError when it cannot be written.
    """
    told = [
        {
            "targets": [f"[{target.host}]:{target.port}" if ":" in target.host else f"{target.host}:{target.port}"],
            "labels": {"job": f"slipstream-{target.kind}", "instance": target.name},
        }
        for target in targets
    ]
    draft = file.with_suffix(".draft")
    try:
        draft.write_bytes(msgspec.json.format(msgspec.json.encode(told)))
        draft.replace(file)
    except OSError as error:
        raise folder_error(file, error) from None
    try:
        yield
    finally:
        with contextlib.suppress(OSError):  # gone, or a disk that became read-only: the next start writes it again
            file.unlink()
