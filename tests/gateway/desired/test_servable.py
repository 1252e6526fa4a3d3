"""An option that a pool's driver has not is refused, with the drivers that have it; which these are is said once."""

from __future__ import annotations

import inspect
import re
from typing import Any

import pytest

from contracts.desired_state import Pool, Replica
from contracts.errors import ConfigError
from engines.drivers import registry
from gateway.desired.servable import DRIVER_OPTIONS, check_pool

GIVEN: dict[str, Any] = {option.name: 4 if option.name == "max_adapters" else True for option in DRIVER_OPTIONS}


def pool_of(driver: str, **options: Any) -> Pool:
    return Pool("gpus", driver, (Replica("a", "http://10.0.0.5:30000"),), api_key_required=False, **options)


@pytest.mark.parametrize("option", DRIVER_OPTIONS, ids=lambda option: option.name)
@pytest.mark.parametrize("driver", registry.names())
def test_an_option_is_taken_by_the_drivers_that_have_it_alone(driver: str, option: Any) -> None:
    pool = pool_of(driver, **{option.name: GIVEN[option.name]})
    if driver in option.drivers:
        check_pool(pool)
        return
    with pytest.raises(ConfigError) as refused:
        check_pool(pool)
    assert refused.value.param == f"pools.gpus.{option.name}"
    said = f"pools.gpus.{option.name}: {str(GIVEN[option.name]).lower()}; the driver {driver} "
    assert refused.value.message.startswith(said)
    assert refused.value.message.endswith(f"(for driver {' or '.join(option.drivers)})")


def test_adapters_are_for_the_drivers_that_load_them() -> None:
    (adapters,) = (option for option in DRIVER_OPTIONS if option.name == "max_adapters")
    assert set(adapters.drivers) == {name for name in registry.names() if registry.get(name).capabilities.adapters}


def test_the_reference_says_the_same_drivers() -> None:
    said = dict(re.findall(r"^    (\w+): [^\n]*\n    \"{3}Driver `(\w+)` only", inspect.getsource(Pool), re.M))
    assert said == {option.name: option.drivers[0] for option in DRIVER_OPTIONS if len(option.drivers) == 1}
