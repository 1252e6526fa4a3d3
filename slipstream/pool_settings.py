"""A pool of the settings file: its desired state for gateways and router, and how its engines are started."""

from __future__ import annotations

from typing import Annotated

import msgspec

from contracts.desired_state import Pool
from engines.embedded.config import EngineConfig
from tools.launch.config import LaunchConfig

DRIVER = "embedded"
"""The driver of pools with embedded engines, which `up` can start."""


class PoolSettings(Pool, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """An entry of `[[pools]]`. The fields below are never part of the desired state."""

    engine: EngineConfig | None = None
    """Driver `embedded` only. `up` starts this pool's engines itself: `model` is their folder, or the name of a model
    that comes with Slipstream. Every field of `[engine]` can be given; what is not is as `[engine]` has it. Names and
    ports are chosen by `up`. Leave out `replicas` then."""
    local_replicas: Annotated[int, msgspec.Meta(ge=1, le=64)] = 1
    """Engines that `up` starts for this pool, where `engine` is given, or `launch` without `replicas`."""
    launch: LaunchConfig | None = None
    """How engines of other projects are started. With `replicas`, they are started elsewhere, by the commands that
    `slipstream tools engines render` prints. Without, `up` starts them on this machine by the same commands."""

    own_account: bool = False
    """Its engines run on the router's machine and under its account. The router then sends them no key, and no request,
    while a program of another account listens on their port (Linux). `up` sets it for engines that it starts by a
    launch."""

    @property
    def desired(self) -> Pool:
        """The pool's desired state."""
        return Pool(**{name: getattr(self, name) for name in Pool.__struct_fields__})
