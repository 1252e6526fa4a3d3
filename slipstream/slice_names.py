"""Names of slices in this deployment, including those of the settings' folder."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from contracts.errors import ConfigError
from contracts.generation import Tier
from slipstream.commands.options import Deployment, running_settings

if TYPE_CHECKING:
    from control.api.call import AdminCall


def slice_names(deployment: Deployment, given: Iterable[str], option: str) -> list[str]:
    """Each given name once, in order. Raises ConfigError, which names the option, for an unknown slice."""
    names = list(dict.fromkeys(name.strip() for name in given if name.strip()))
    known = all_slice_names(deployment) if names else []
    for name in names:
        if name not in known:
            raise ConfigError(f"{option}: there is no slice {name!r}; slices: {', '.join(known)}")
    return names


def all_slice_names(deployment: Deployment) -> list[str]:
    """The names of all slices."""
    return list(running_settings(*deployment).evals.catalogue().names)


def slice_names_for(deployment: Deployment, model: str) -> list[str]:
    """All slices that fit the model's tier; those of chat models if the fleet does not have the model."""
    from control.fleet.fleet_edit import newest_fleet
    from slipstream.administration import administer

    async def tier(call: AdminCall) -> Tier:
        found = (await newest_fleet(call)).state.model(model)
        return Tier.CHAT if found is None else found.tier

    return list(running_settings(*deployment).evals.catalogue().names_for(administer(deployment, tier)))


def slice_margins(given: Sequence[str], option: str) -> dict[str, object]:
    """A rule's `margin` and `margins`, from values like `0.02` (for all) and `json=0.022`. Raises ConfigError."""
    own: dict[str, float] = {}
    found: dict[str, object] = {}
    for text in given:
        name, equals, share = text.rpartition("=")
        try:
            value = float(share)
        except ValueError:
            message = f"{option}: {text!r} is neither a share such as 0.02 nor the share of a slice such as json=0.022"
            raise ConfigError(message, param=option) from None
        if equals:
            own[name] = value
        else:
            found["margin"] = value
    return {**found, "margins": own} if own else found
