"""Names of slices as the settings know them: a folder's too."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

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


def slice_margins(given: Sequence[str], option: str) -> dict[str, object]:
    """A rule's `margin` and `margins`, of values like `0.02`, for all, and `json=0.022`. Raises ConfigError."""
    own: dict[str, float] = {}
    found: dict[str, object] = {}
    for text in given:
        name, equals, share = text.rpartition("=")
        try:
            value = float(share)
        except ValueError:
            message = f"{option}: {text!r} is no share like 0.02, nor one of a slice like json=0.022"
            raise ConfigError(message, param=option) from None
        if equals:
            own[name] = value
        else:
            found["margin"] = value
    return {**found, "margins": own} if own else found
