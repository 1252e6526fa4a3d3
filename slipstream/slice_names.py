"""Names of slices as the settings know them: a folder's too."""

from __future__ import annotations

from collections.abc import Iterable

from contracts.errors import ConfigError
from slipstream.commands.options import Deployment, running_settings


def slice_names(deployment: Deployment, given: Iterable[str], option: str) -> list[str]:
    """Each of those given once, in their order. Raises ConfigError for one that there is not, naming the option."""
    names = list(dict.fromkeys(name.strip() for name in given if name.strip()))
    known = all_slice_names(deployment) if names else []
    for name in names:
        if name not in known:
            raise ConfigError(f"{option}: there is no slice {name!r}; slices: {', '.join(known)}")
    return names


def all_slice_names(deployment: Deployment) -> list[str]:
    """All of them."""
    return list(running_settings(*deployment).evals.catalogue().names)
